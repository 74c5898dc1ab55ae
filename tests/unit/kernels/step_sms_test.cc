// Launches of the step kernel that may be on a GPU at once fit its SMs together, and a program's
// follow one another.
#include "kernels/step/step_sms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "tests/support/seed.h"
#include "tests/unit/kernels/fake_cuda.h"

namespace concert::test {
namespace {

using kernels::ProgramEngine;
using kernels::cuda::AtWork;
using kernels::cuda::EngineContest;
using kernels::cuda::StepSms;

constexpr int kSmCount = 132;

// What the test knows of a launch from what the driver was told.
struct Launched {
  const void* program = nullptr;
  CUstream stream = nullptr;
  int blocks = 0;
  bool high = false;
  CUevent end = nullptr;    // what says so, if anything still does
  std::set<size_t> behind;  // launches, all of them
  bool ended = false;
};

class StepSmsTest : public testing::Test {
 protected:
  void Open(ProgramEngine engine, int low_class_percent = 25) {
    ASSERT_TRUE(sms_.Open(fake_.api().driver, 0, {kSmCount, engine, low_class_percent}).ok());
  }

  // The blocks of a run of `program`, of a session of its own, on `stream`, of the high class on
  // those from 8 on; 0: none.
  int Run(int program, int stream, int most = 0) {
    const void* const its = &programs_[program];
    CUstream on = FakeCuda::StreamOf(static_cast<policies::Lane>(stream));
    sms_.See({.client = static_cast<uint64_t>(program),
              .program = true,
              .high = stream >= policies::kFirstHighLane,
              .now_ns = now_ns_});
    if (!sms_.Wanted(/*work=*/1)) return 0;
    fake_.awaited.clear();
    const absl::StatusOr<int> blocks = sms_.Take(its, on, most);
    EXPECT_TRUE(blocks.ok()) << blocks.status();
    if (*blocks == 0) {
      EXPECT_TRUE(fake_.awaited.empty());
      return 0;
    }
    Launched launch = {.program = its,
                       .stream = on,
                       .blocks = *blocks,
                       .high = stream >= policies::kFirstHighLane};
    for (size_t i = 0; i < launches_.size(); ++i) {
      const Launched& other = launches_[i];
      const bool awaited =
          std::find(fake_.awaited.begin(), fake_.awaited.end(), other.end) != fake_.awaited.end();
      if (other.ended || (other.stream != on && !awaited)) continue;
      launch.behind.insert(i);
      launch.behind.insert(other.behind.begin(), other.behind.end());
    }
    EXPECT_TRUE(sms_.Launched(its, *blocks, on).ok());
    launch.end = fake_.recorded;
    for (Launched& other : launches_) {
      if (other.end == launch.end) other.end = nullptr;  // nobody can wait for it any more
    }
    launches_.push_back(launch);
    return *blocks;
  }

  void End(size_t launch) {
    launches_[launch].ended = true;
    fake_.unfinished.erase(std::exchange(launches_[launch].end, nullptr));
  }

  // That a GPU may have at once now, of all launches or of one class: all that has not ended and
  // waits for nothing.
  int BlocksOnGpu(std::optional<bool> high = std::nullopt) const {
    int blocks = 0;
    for (const Launched& launch : launches_) {
      const bool counts = !high.has_value() || launch.high == *high;
      if (counts && CanRun(launch)) blocks += launch.blocks;
    }
    return blocks;
  }
  bool CanRun(const Launched& launch) const {
    return !launch.ended && std::all_of(launch.behind.begin(), launch.behind.end(),
                                        [&](size_t other) { return launches_[other].ended; });
  }

  FakeCuda fake_;
  StepSms sms_;
  int64_t now_ns_ = 0;
  char programs_[16] = {};
  std::vector<Launched> launches_;
};

TEST_F(StepSmsTest, OneSessionHasAllSms) {
  Open(ProgramEngine::kStep);
  EXPECT_EQ(Run(0, 0), kSmCount);
  EXPECT_EQ(Run(0, 0, 40), 40);
  EXPECT_TRUE(fake_.awaited.empty());  // streams keep their order
}

TEST_F(StepSmsTest, SessionsAtWorkShareTheSms) {
  Open(ProgramEngine::kStep);
  EXPECT_EQ(Run(0, 0), 132);
  EXPECT_EQ(Run(1, 1), 66);  // behind the first, which has all
  EXPECT_EQ(fake_.awaited.size(), 1u);
  EXPECT_EQ(Run(2, 2), 44);
  EXPECT_EQ(Run(3, 3), 33);
  for (int program = 4; program < 6; ++program) Run(program, program);
  EXPECT_EQ(launches_.back().blocks, 22);
  for (int program = 6; program < 10; ++program) Run(program, program % 8);
  EXPECT_EQ(launches_.back().blocks, 16) << "more take turns";
}

TEST_F(StepSmsTest, BesideSingleOpsOfOthersProgramsAreGraphs) {
  Open(ProgramEngine::kAuto);
  EXPECT_EQ(Run(0, 0), 132);
  sms_.See({.client = 1});
  EXPECT_EQ(Run(0, 0), 0);
  for (uint64_t i = 2; i < AtWork::kIdleAfter; ++i) EXPECT_EQ(Run(0, 0), 0) << i;
  EXPECT_EQ(Run(0, 0), 132);  // the other has been forgotten
}

TEST_F(StepSmsTest, AmongProgramsTheEngineThatGetsMoreDoneWins) {
  Open(ProgramEngine::kAuto);
  int steps = 0, graphs = 0;
  for (int i = 0; i < 600; ++i) {
    const bool step = Run(i % 2, i % 2) != 0;
    now_ns_ += step ? 300 : 200;
    if (i >= 100) ++(step ? steps : graphs);
    for (size_t launch = 0; launch < launches_.size(); ++launch) End(launch);
  }
  EXPECT_EQ(steps, 0);
  EXPECT_EQ(graphs, 500);
}

// That one of two has stopped shows only in time. Graphs win between them; what one of them does
// alone meanwhile tells nothing of that.
TEST_F(StepSmsTest, WhoIsLeftAloneDecidesNothingAndHasAllSmsInTheEnd) {
  Open(ProgramEngine::kAuto);
  const auto run = [&](int program) {
    const int blocks = Run(program, program);
    now_ns_ += blocks != 0 ? 300 : 200;
    for (size_t launch = 0; launch < launches_.size(); ++launch) End(launch);
    return blocks;
  };
  const auto both = [&](int rounds, int blocks) {
    for (int i = 0; i < rounds; ++i) {
      ASSERT_EQ(run(0), blocks) << i;
      ASSERT_EQ(run(1), blocks) << i;
    }
  };
  const auto one = [&](int blocks) {
    for (uint64_t i = 2; i < AtWork::kIdleAfter; ++i) ASSERT_EQ(run(1), blocks) << i;
    ASSERT_EQ(run(1), kSmCount);
  };
  EXPECT_EQ(run(1), kSmCount);
  ASSERT_NO_FATAL_FAILURE(both(2, kSmCount / 2));
  ASSERT_NO_FATAL_FAILURE(one(kSmCount / 2));
  ASSERT_NO_FATAL_FAILURE(both(EngineContest::kRounds, kSmCount / 2));
  ASSERT_NO_FATAL_FAILURE(both(EngineContest::kRounds + 10, 0));
  ASSERT_NO_FATAL_FAILURE(one(0));
}

TEST_F(StepSmsTest, TheHighClassHasThreeQuarters) {
  Open(ProgramEngine::kAuto);
  Run(0, 0);
  End(0);
  EXPECT_EQ(Run(1, 8), 99);
  EXPECT_EQ(Run(2, 1), 16);
  EXPECT_EQ(Run(3, 2), 16);
  EXPECT_EQ(Run(0, 3), 16);  // behind an older one of its class: 3 * 16 > 132 / 4
  EXPECT_EQ(Run(4, 4), 16);
  EXPECT_EQ(BlocksOnGpu(/*high=*/false), 32);
  EXPECT_EQ(BlocksOnGpu(/*high=*/true), 99);
  End(1);
  EXPECT_EQ(Run(1, 8), 99);
  EXPECT_EQ(BlocksOnGpu(/*high=*/true), 99) << "those that wait have nobody's place";
}

TEST_F(StepSmsTest, WhatIsLeftToTheLowClassIsAMatterOfConfiguration) {
  Open(ProgramEngine::kAuto, /*low_class_percent=*/50);
  Run(0, 0);
  End(0);
  EXPECT_EQ(Run(1, 8), 66);
  EXPECT_EQ(Run(2, 1), 33);
  EXPECT_EQ(Run(0, 2), 33);
  EXPECT_EQ(BlocksOnGpu(/*high=*/false), 66);
  EXPECT_EQ(BlocksOnGpu(/*high=*/true), 66);
}

TEST_F(StepSmsTest, BesideWhatComputesItHasHalf) {
  Open(ProgramEngine::kAuto);
  sms_.See({.client = 7, .arithmetic = true});
  EXPECT_EQ(Run(1, 8), 66);
  EXPECT_EQ(Run(2, 9), 33);
  EXPECT_EQ(BlocksOnGpu(), 66) << "behind the first, which has all that the class may have";
}

TEST_F(StepSmsTest, ThereIsAnEndToWhatMayBeUnderWay) {
  Open(ProgramEngine::kStep);
  for (size_t i = 0; i < StepSms::kMaxLaunches; ++i)
    EXPECT_GT(Run(static_cast<int>(i % 16), static_cast<int>(i / 16)), 0) << i;
  EXPECT_EQ(Run(0, 2), 0);
  End(0);
  EXPECT_GT(Run(0, 2), 0);
}

// They follow one another on its stream, and one knows of all before it whether they have ended.
TEST_F(StepSmsTest, OneSessionMayHaveAnyNumberUnderWay) {
  Open(ProgramEngine::kStep);
  for (size_t i = 0; i < 10 * StepSms::kMaxLaunches; ++i) ASSERT_EQ(Run(0, 0), 132) << i;
  EXPECT_TRUE(fake_.awaited.empty());
  EXPECT_EQ(Run(1, 1), 66);
  EXPECT_EQ(BlocksOnGpu(), 132) << "behind the last of the other";
  EXPECT_EQ(launches_.back().behind.size(), launches_.size() - 1);
}

TEST_F(StepSmsTest, ManyUnderWayTakeWhatTheLargestOfThemTakes) {
  Open(ProgramEngine::kStep);
  EXPECT_EQ(Run(0, 0), 132);
  for (size_t i = 0; i < 2 * StepSms::kMaxLaunches; ++i) ASSERT_EQ(Run(0, 0, 16), 16) << i;
  EXPECT_EQ(Run(1, 1), 66);
  EXPECT_EQ(BlocksOnGpu(), 132) << "the first of the other has not ended";
}

// Each question takes microseconds: one run in 32 used to ask 32.
TEST_F(StepSmsTest, WhoIsAloneAsksOnceInAsManyRunsAsThereArePlaces) {
  Open(ProgramEngine::kStep);
  constexpr size_t kRuns = 10 * StepSms::kMaxLaunches;
  for (size_t i = 0; i < kRuns; ++i) {
    const int before = fake_.events_queried;
    ASSERT_EQ(Run(0, 0), 132) << i;
    ASSERT_LE(fake_.events_queried, before + 1) << i;
    End(i);
  }
  EXPECT_LT(fake_.events_queried, 10);
}

// Launches of one stream follow one another, whether or not they are known to have ended.
TEST_F(StepSmsTest, SessionsThatFitTheGpuAskWhenPlacesRunOut) {
  Open(ProgramEngine::kStep);
  constexpr int kSessions = 8, kRounds = 12;
  const auto run_all = [&] {
    for (int session = 0; session < kSessions; ++session) {
      EXPECT_GT(Run(session, session), 0);
      End(launches_.size() - 1);
    }
  };
  for (int round = 0; round < 8; ++round) run_all();  // until shares have settled
  fake_.events_queried = 0;
  for (int round = 0; round < kRounds; ++round) run_all();
  constexpr int kTimes = 1 + kSessions * kRounds / static_cast<int>(StepSms::kMaxLaunches);
  EXPECT_LE(fake_.events_queried, kTimes * kSessions);
}

TEST_F(StepSmsTest, WhatMayBeOnTheGpuAtOnceFitsIt) {
  std::mt19937 random(Seed());
  SCOPED_TRACE(testing::Message() << "seed " << Seed());
  Open(ProgramEngine::kStep);
  for (int turn = 0; turn < 3000; ++turn) {
    const uint32_t slow = turn < 1500 ? 4 : 40;  // so that places run out
    for (size_t i = 0; i < launches_.size(); ++i) {
      if (random() % slow == 0 && CanRun(launches_[i])) End(i);
    }
    ASSERT_LE(BlocksOnGpu(), kSmCount);
    const int at_work = 1 + turn / 100 % 10;
    if (Run(static_cast<int>(random() % at_work), static_cast<int>(random() % 12)) == 0) continue;
    const Launched& last = launches_.back();
    ASSERT_LE(BlocksOnGpu(), kSmCount);
    for (size_t i = 0; i + 1 < launches_.size(); ++i) {
      if (!launches_[i].ended && !last.behind.contains(i)) {
        ASSERT_NE(launches_[i].program, last.program);
      }
    }
  }
}

}  // namespace
}  // namespace concert::test
