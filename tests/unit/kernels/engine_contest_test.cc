// Of two engines the one under which more gets done is taken, for just these sessions, and asked
// about again.
#include "kernels/step/engine_contest.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "kernels/step/at_work.h"

namespace concert::tests {
namespace {

using kernels::cuda::AtWork;
using kernels::cuda::EngineContest;

constexpr int kSessions = 4;
// Of one contest.
constexpr int kTrial = kSessions * (EngineContest::kSettlingRuns + EngineContest::kCountedRuns);

class EngineContestTest : public testing::Test {
 protected:
  // So many runs that take so long with each engine; how many of them were steps.
  int Run(int count, int64_t step_ns, int64_t graph_ns, uint64_t company = 1) {
    int steps = 0;
    for (int i = 0; i < count; ++i) {
      const bool step = contest_.StepWanted(company, kSessions, 1e6, now_ns_);
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

TEST(AtWorkTest, WhoHasNotBeenSeenForLongIsNotAtWork) {
  AtWork at_work;
  at_work.See({.client = 1, .program = true});
  const uint64_t alone = at_work.company();
  at_work.See({.client = 2, .program = true, .high = true});
  EXPECT_EQ(at_work.clients(), 2);
  EXPECT_TRUE(at_work.classes_differ());
  EXPECT_TRUE(at_work.only_programs());
  EXPECT_NE(at_work.company(), alone);
  at_work.See({.client = 2});
  EXPECT_FALSE(at_work.only_programs());
  EXPECT_FALSE(at_work.classes_differ());
  for (int i = 0; i < 100; ++i) at_work.See({.client = 1, .program = true});
  EXPECT_EQ(at_work.clients(), 1);
  EXPECT_TRUE(at_work.only_programs());
  EXPECT_EQ(at_work.company(), alone);
}

}  // namespace
}  // namespace concert::tests
