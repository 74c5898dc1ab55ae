// What becomes of ops whose launch the device refuses: each of them fails, once, and what follows
// goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "tests/bench/dispatcher_bed.h"
#include "tests/bench/null_device.h"

namespace concert::daemon {
namespace {

constexpr uint32_t kOps = 8;

class RefusingGpu : public bench::NullDevice {
 public:
  absl::Status Launch(const LaunchRequest& launch) override {
    if (!refuses) return NullDevice::Launch(launch);
    most_refused = std::max(most_refused, launch.ops.size());
    return absl::InternalError("no launch today");
  }

  bool refuses = false;
  size_t most_refused = 0;  // ops of a launch
};

class RefusedLaunchTest : public testing::Test {
 protected:
  // A GEMM on each queue, until all have ended.
  void Run(uint64_t set) {
    const std::vector<bench::GemmShape> shapes(kOps, {.m = 16, .n = 256, .k = 256});
    bed_.Submit(shapes, 0, set);
    for (int turn = 0; turn < 1000 && (turn < 2 || !bed_.idle()); ++turn) bed_.Turn(now_ += 1000);
    EXPECT_TRUE(bed_.idle());
    for (uint32_t queue = 0; queue < kOps; ++queue)
      EXPECT_EQ(bed_.timeline(queue), bed_.ticket(queue)) << "queue " << queue;
  }

  RefusingGpu gpu_;
  bench::DispatcherBed bed_{gpu_, "auto", {}, kOps};
  policies::Time now_ = 0;
};

TEST_F(RefusedLaunchTest, EachOfItsOpsFailsAndWhatFollowsGoesOn) {
  gpu_.refuses = true;
  Run(/*set=*/0);
  EXPECT_GT(gpu_.most_refused, 1u);
  std::vector<uint16_t> queues;
  for (const concert_completion& failure : bed_.TakeFailures(0)) {
    queues.push_back(failure.queue);
    EXPECT_EQ(failure.ticket, 1u);
    EXPECT_EQ(failure.status, CONCERT_ABI_INTERNAL);
    EXPECT_EQ(failure.message, CONCERT_MESSAGE_DEVICE_ERROR);
    EXPECT_EQ(failure.args[1], CONCERT_OP_GEMM);
  }
  EXPECT_THAT(queues, testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_GT(bed_.dispatcher().gauges().launch_errors, 0u);

  gpu_.refuses = false;
  Run(/*set=*/1);
  EXPECT_TRUE(bed_.TakeFailures(0).empty());
}

}  // namespace
}  // namespace concert::daemon
