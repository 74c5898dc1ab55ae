// Of two engines the one under which more gets done is taken, for just these sessions, and asked
// about again.
#include "kernels/step/engine_contest.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace concert::test {
namespace {

using kernels::cuda::EngineContest;

constexpr int kSessions = 4;
// Of one contest.
constexpr int kRounds = EngineContest::kRounds;
constexpr int kTrial = kSessions * kRounds;

class EngineContestTest : public testing::Test {
 protected:
  // So many runs, of each session in turn, that take so long with each engine; how many of them
  // were steps.
  int Run(int count, int64_t step_ns, int64_t graph_ns, uint64_t company = 1) {
    int steps = 0;
    for (int i = 0; i < count; ++i) {
      const bool step = contest_.StepWanted({.company = company,
                                             .clients = kSessions,
                                             .longest_away = kSessions - 1,
                                             .work = 1e6,
                                             .now_ns = now_ns_});
      steps += step;
      now_ns_ += step ? step_ns : graph_ns;
    }
    return steps;
  }

  EngineContest contest_;
  int64_t now_ns_ = 1'000'000;
};

TEST_F(EngineContestTest, TheFasterOneWins) {
  EXPECT_EQ(Run(kTrial, 1000, 800), kTrial);
  EXPECT_EQ(Run(kTrial, 1000, 800), 0);
  EXPECT_EQ(Run(1000, 1000, 800), 0);
}

TEST_F(EngineContestTest, TheStepKernelWinsWhereTheyAreAlike) {
  Run(2 * kTrial, 1000, 980);
  EXPECT_EQ(Run(1000, 1000, 980), 1000);
}

TEST_F(EngineContestTest, AGraphThatIsMuchSlowerHasFewRuns) {
  constexpr int kFew = kSessions * (EngineContest::kSettlingRounds + EngineContest::kClearRounds);
  EXPECT_EQ(Run(kTrial, 1000, 1500), kTrial);
  EXPECT_EQ(Run(kFew, 1000, 1500), 0);
  EXPECT_EQ(Run(1000, 1000, 1500), 1000);
}

TEST_F(EngineContestTest, AGraphThatIsSomewhatSlowerHasAllOfThem) {
  Run(kTrial, 1000, 1150);
  EXPECT_EQ(Run(kTrial, 1000, 1150), 0);
  EXPECT_EQ(Run(1000, 1000, 1150), 1000);
}

TEST_F(EngineContestTest, ThereIsAnotherContestLater) {
  Run(2 * kTrial, 1000, 800);
  const int between = EngineContest::kRunsBetween * 2 * kTrial;
  EXPECT_EQ(Run(between, 1000, 1200), 0);  // it has become slower, which nobody has seen yet
  EXPECT_EQ(Run(2 * kTrial + 2, 1000, 1200), kTrial + 2);
  EXPECT_EQ(Run(1000, 1000, 1200), 1000);
}

TEST_F(EngineContestTest, OnePauseOfTheClientsDoesNotCount) {
  Run(kTrial - 5, 1000, 800);
  now_ns_ += 1'000'000'000;
  Run(kTrial + 5, 1000, 1200);
  EXPECT_EQ(Run(1000, 1000, 1200), 1000);
}

TEST_F(EngineContestTest, EachCompanyHasAContestOfItsOwn) {
  Run(2 * kTrial, 1000, 800, /*company=*/1);
  Run(2 * kTrial, 800, 1000, /*company=*/2);
  EXPECT_EQ(Run(100, 1000, 800, /*company=*/1), 0);
  EXPECT_EQ(Run(100, 800, 1000, /*company=*/2), 100);
}

TEST_F(EngineContestTest, AContestBeginsAnewBehindAnotherCompany) {
  Run(kTrial - 1, 1000, 800, /*company=*/1);
  Run(1, 1000, 800, /*company=*/2);
  EXPECT_EQ(Run(kTrial, 1000, 800, /*company=*/1), kTrial);
  EXPECT_EQ(Run(kTrial, 1000, 800, /*company=*/1), 0);
}

// Of two sessions one has a run while the other has nine.
TEST_F(EngineContestTest, WhoseRunsTakeLongHasAsManyOfThem) {
  constexpr int kOfRound = 10;
  const auto rounds = [&](int count) {
    int steps = 0;
    for (int i = 0; i < count * kOfRound; ++i) {
      const bool step = contest_.StepWanted({.company = 1,
                                             .clients = 2,
                                             .longest_away = kOfRound - 1,
                                             .work = 1e6,
                                             .now_ns = now_ns_});
      steps += step;
      now_ns_ += step ? 1000 : 800;
    }
    return steps;
  };
  EXPECT_EQ(rounds(kRounds), kRounds * kOfRound);
  EXPECT_EQ(rounds(kRounds), 0);
  EXPECT_EQ(rounds(EngineContest::kRunsBetween * 2 * kRounds), 0);
  EXPECT_EQ(rounds(kRounds), kRounds * kOfRound) << "the next contest";
}

}  // namespace
}  // namespace concert::test
