// Launches of the step kernel that may be on a GPU at once fit its SMs together, and a program's
// follow one another.
#include "kernels/step/step_sms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "tests/support/seed.h"
#include "tests/unit/kernels/fake_cuda.h"

namespace concert::tests {
namespace {

using kernels::cuda::StepSms;

constexpr int kSmCount = 132;

// What the test knows of a launch from what the driver was told.
struct Launched {
  const void* program = nullptr;
  CUstream stream = nullptr;
  int blocks = 0;
  CUevent end = nullptr;
  std::set<size_t> behind;  // launches, all of them
  bool ended = false;
};

class StepSmsTest : public testing::Test {
 protected:
  void Open(bool shared) { ASSERT_TRUE(sms_.Open(fake_.api().driver, 0, kSmCount, shared).ok()); }

  // The blocks of a run of `program`, of a session of its own, on `stream`; 0: none.
  int Run(int program, int stream, int most = 0) {
    const void* const its = &programs_[program];
    CUstream on = FakeCuda::StreamOf(static_cast<policies::Lane>(stream));
    sms_.See(static_cast<uint32_t>(program));
    if (!sms_.wanted()) return 0;
    fake_.awaited.clear();
    const absl::StatusOr<int> blocks = sms_.Take(its, on, most);
    EXPECT_TRUE(blocks.ok()) << blocks.status();
    if (*blocks == 0) {
      EXPECT_TRUE(fake_.awaited.empty());
      return 0;
    }
    Launched launch = {.program = its, .stream = on, .blocks = *blocks};
    for (size_t i = 0; i < launches_.size(); ++i) {
      const Launched& other = launches_[i];
      const bool awaited =
          std::find(fake_.awaited.begin(), fake_.awaited.end(), other.end) != fake_.awaited.end();
      if (other.ended || (other.stream != on && !awaited)) continue;
      launch.behind.insert(i);
      launch.behind.insert(other.behind.begin(), other.behind.end());
    }
    const std::set<CUevent> before = fake_.unfinished;
    EXPECT_TRUE(sms_.Launched(its, *blocks, on).ok());
    for (CUevent event : fake_.unfinished) {
      if (!before.contains(event)) launch.end = event;
    }
    launches_.push_back(launch);
    return *blocks;
  }

  void End(size_t launch) {
    launches_[launch].ended = true;
    fake_.unfinished.erase(launches_[launch].end);
  }

  FakeCuda fake_;
  StepSms sms_;
  char programs_[16] = {};
  std::vector<Launched> launches_;
};

TEST_F(StepSmsTest, OneSessionHasAllSms) {
  Open(/*shared=*/true);
  EXPECT_EQ(Run(0, 0), kSmCount);
  EXPECT_EQ(Run(0, 0, 40), 40);
  EXPECT_TRUE(fake_.awaited.empty());  // streams keep their order
}

TEST_F(StepSmsTest, SessionsAtWorkShareTheSms) {
  Open(/*shared=*/true);
  EXPECT_EQ(Run(0, 0), 132);
  EXPECT_EQ(Run(1, 1), 66);  // behind the first, which has all
  EXPECT_EQ(fake_.awaited.size(), 1u);
  EXPECT_EQ(Run(2, 2), 33);
  for (int program = 3; program < 8; ++program) Run(program, program);
  EXPECT_EQ(launches_.back().blocks, 16);
}

TEST_F(StepSmsTest, UnsharedTheyAreForOneSessionAtWork) {
  Open(/*shared=*/false);
  EXPECT_EQ(Run(0, 0), 132);
  EXPECT_EQ(Run(1, 1), 0);
  for (int i = 0; i < 30; ++i) Run(1, 1);  // until the first is forgotten
  EXPECT_EQ(Run(1, 1), 132);
}

TEST_F(StepSmsTest, ThereIsAnEndToWhatMayBeUnderWay) {
  Open(/*shared=*/true);
  for (size_t i = 0; i < StepSms::kMaxLaunches; ++i) EXPECT_EQ(Run(0, 0), 132) << i;
  EXPECT_EQ(Run(0, 0), 0);
  End(0);
  EXPECT_EQ(Run(0, 0), 132);
}

TEST_F(StepSmsTest, WhatMayBeOnTheGpuAtOnceFitsIt) {
  std::mt19937 random(Seed());
  SCOPED_TRACE(testing::Message() << "seed " << Seed());
  Open(/*shared=*/true);
  for (int turn = 0; turn < 3000; ++turn) {
    // Some end, of those that nothing keeps from running.
    for (size_t i = 0; i < launches_.size(); ++i) {
      const auto has_ended = [&](size_t other) { return launches_[other].ended; };
      const std::set<size_t>& behind = launches_[i].behind;
      if (!launches_[i].ended && random() % 4 == 0 &&
          std::all_of(behind.begin(), behind.end(), has_ended)) {
        End(i);
      }
    }
    const int at_work = 1 + turn / 100 % 10;
    if (Run(static_cast<int>(random() % at_work), static_cast<int>(random() % 8)) == 0) continue;
    const Launched& last = launches_.back();
    int beside = last.blocks;
    for (size_t i = 0; i + 1 < launches_.size(); ++i) {
      if (launches_[i].ended || last.behind.contains(i)) continue;
      beside += launches_[i].blocks;
      ASSERT_NE(launches_[i].program, last.program);
    }
    ASSERT_LE(beside, kSmCount);
  }
}

}  // namespace
}  // namespace concert::tests
