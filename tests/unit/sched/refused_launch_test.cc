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

  // What it has not refused has ended when it is told so.
  absl::Status Signal(Lane lane, std::span<const TimelineWrite> writes) override {
    if (!holds) return NullDevice::Signal(lane, writes);
    held_.insert(held_.end(), writes.begin(), writes.end());
    return absl::OkStatus();
  }
  void EndAll() {
    EXPECT_TRUE(NullDevice::Signal(0, held_).ok());
    held_.clear();
  }

  bool refuses = false, holds = false;
  size_t most_refused = 0;  // ops of a launch

 private:
  std::vector<TimelineWrite> held_;
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

// Its failure is there before it has ended: the client has room for as many as it has ops, and not
// for one more.
TEST_F(RefusedLaunchTest, LeavesNoRoomForMoreFailuresThanTheClientCanTake) {
  const bench::GemmShape shape = {.m = 16, .n = 256, .k = 256};
  const uint32_t room = bed_.memory(0).layout().rings[0].completion_capacity;
  gpu_.refuses = gpu_.holds = true;
  const auto turn_often = [&] {
    for (int turn = 0; turn < 3000; ++turn) bed_.Turn(now_ += 1000);
  };
  // One on queue 0, the others on queue 1, each behind the user timeline of its queue.
  const auto write = [&](uint32_t queue, uint32_t count) {
    concert_descriptor op = bed_.Gemm(shape, queue);
    op.wait_count = 1;
    op.waits[0] = {CONCERT_TIMELINE_ID(bed_.IdOf(0), CONCERT_TIMELINE_USER | queue), 1};
    for (uint32_t i = 0; i < count; ++i) bed_.Write(0, op);
    bed_.Ring(0);
    turn_often();
  };
  write(0, 1);
  write(1, room - 1);
  EXPECT_EQ(bed_.unfinished(), room);
  bed_.user_timeline(0, 0) = 1;
  turn_often();
  EXPECT_EQ(bed_.dispatcher().gauges().launch_errors, 1u);
  write(1, room / 2);
  EXPECT_EQ(bed_.unfinished(), room);
  EXPECT_EQ(bed_.TakeFailures(0).size(), 1u);

  bed_.user_timeline(0, 1) = 1;
  gpu_.refuses = gpu_.holds = false;
  gpu_.EndAll();
  for (int turn = 0; turn < 1000 && bed_.timeline(1) < bed_.ticket(1); ++turn)
    bed_.Turn(now_ += 1000);
  EXPECT_EQ(bed_.timeline(1), bed_.ticket(1));
}

}  // namespace
}  // namespace concert::daemon
