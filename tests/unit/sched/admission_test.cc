// How much of the rings a dispatcher admits before it launches.
#include <gtest/gtest.h>

#include <vector>

#include "tests/bench/dispatcher_bed.h"
#include "tests/bench/null_device.h"

namespace concert::daemon {
namespace {

// Counts launches; ops end when the test says so.
class HeldDevice : public bench::NullDevice {
 public:
  absl::Status Launch(Lane, const LaunchRequest& request) override {
    ++launches_;
    writes_.insert(writes_.end(), request.writes.begin(), request.writes.end());
    return absl::OkStatus();
  }
  void EndAll() {
    EXPECT_TRUE(Signal(0, writes_).ok());
    writes_.clear();
  }
  int launches() const { return launches_; }

 private:
  int launches_ = 0;
  std::vector<TimelineWrite> writes_;
};

class AdmissionTest : public testing::Test {
 protected:
  static constexpr uint32_t kChain = 16;
  void SubmitChain(uint32_t queue) {
    for (uint32_t i = 0; i < kChain; ++i) bed_.Submit(shape_, queue, /*set=*/0);
  }
  void Turn() { bed_.Turn(now_ += 1000); }

  const std::vector<bench::GemmShape> shape_ = {{.m = 16, .n = 2048, .k = 2048}};
  HeldDevice gpu_;
  bench::DispatcherBed bed_{gpu_, "auto", {.scheduler = {.max_ops = 512}}, /*queues=*/4};
  policies::Time now_ = 0;
};

TEST_F(AdmissionTest, AnIdleGpuGetsTheFirstOpOfAChainBeforeTheRestIsAdmitted) {
  SubmitChain(0);
  Turn();
  EXPECT_GT(gpu_.launches(), 0);
  EXPECT_LT(bed_.unfinished(), kChain);
  Turn();
  EXPECT_EQ(bed_.unfinished(), kChain);
  while (!bed_.idle()) {
    gpu_.EndAll();
    Turn();
  }
  EXPECT_EQ(bed_.timeline(0), kChain);
}

TEST_F(AdmissionTest, WhatIsReadyTogetherIsAdmittedTogether) {
  bed_.Submit(std::vector<bench::GemmShape>(4, shape_[0]), /*first_queue=*/0, /*set=*/0);
  Turn();
  EXPECT_EQ(gpu_.launches(), 1);
  EXPECT_EQ(bed_.unfinished(), 4u);
}

TEST_F(AdmissionTest, ABusyGpuLeavesTimeForAWholeChain) {
  SubmitChain(0);
  Turn();
  SubmitChain(1);
  Turn();
  EXPECT_EQ(bed_.unfinished(), 2 * kChain);
}

}  // namespace
}  // namespace concert::daemon
