#include "daemon/sched/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "tests/unit/sched/scheduler_fixture.h"

namespace concert::daemon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST_F(SchedulerTest, LaunchesAChainWithoutWaitingForCompletions) {
  const QueueId queue = AddQueue();
  const OpId first = Submit(queue);
  const OpId second = Submit(queue);
  Step();
  EXPECT_THAT(launched_, ElementsAre(first, second));
  // The second follows on the same lane, so nothing else orders it.
  EXPECT_EQ(lane_[first], lane_[second]);
  EXPECT_EQ(order_mask_[second], 0);
}

TEST_F(SchedulerTest, HoldsBackAtItsDepth) {
  const QueueId queue = AddQueue();
  const OpId first = Submit(queue);
  const OpId second = Submit(queue);
  const OpId third = Submit(queue);
  Step();
  EXPECT_THAT(launched_, ElementsAre(first, second));
  Finish(queue, 1);
  Step();
  EXPECT_THAT(launched_, ElementsAre(first, second, third));
}

class BacklogTest : public SchedulerTest {
 protected:
  BacklogTest() : SchedulerTest({.depth = 2, .backlog_ns = 50'000}) {}
};

TEST_F(BacklogTest, GoesOnPastItsDepthWhileThePredictedWorkIsShort) {
  const QueueId queue = AddQueue();
  for (int i = 0; i < 20; ++i) Submit(queue);
  Step();
  // Each op is predicted to take 10 us: five fill the backlog.
  EXPECT_GT(launched_.size(), 2u);
  EXPECT_LT(launched_.size(), 10u);
}

// Ops that take twice as long as predicted must not pile up on the device.
TEST_F(BacklogTest, WhatIsLateStillCounts) {
  const QueueId queue = AddQueue();
  for (int i = 0; i < 40; ++i) Submit(queue);
  Step();
  const size_t at_first = launched_.size();
  for (uint64_t ended = 1; ended <= 20; ++ended) {
    now_ += 20'000;
    Step();
    Finish(queue, ended);
    Step();
    EXPECT_LE(launched_.size() - ended, at_first);
  }
  EXPECT_GE(launched_.size(), 21u);
}

// Launches are predicted to end after 10 us and what it takes to start them: too long for the
// backlog, but not for the backlog and half of the running one.
class CoRunSetTest : public SchedulerTest {
 protected:
  CoRunSetTest() : SchedulerTest({.depth = 1, .backlog_ns = 10'000}) {
    for (QueueId& queue : queues_) queue = AddQueue();
    Submit(queues_[0]);
    Step();
    Submit(queues_[1]);
    Step();
  }

  std::array<QueueId, 4> queues_;
};

TEST_F(CoRunSetTest, WaitsForAsMuchAsIsInFlight) {
  ASSERT_EQ(launched_.size(), 2u);  // as much was ready as was in flight
  Submit(queues_[2]);
  Step();
  EXPECT_EQ(launched_.size(), 2u);
  Submit(queues_[3]);
  Step();
  EXPECT_EQ(launched_.size(), 3u);  // behind which is too much for the fourth
}

TEST_F(CoRunSetTest, AChainsNextOpWaitsForNobody) {
  ASSERT_EQ(launched_.size(), 2u);
  Submit(queues_[0]);
  Step();
  EXPECT_EQ(launched_.size(), 3u);
}

TEST_F(CoRunSetTest, GoesOnWhenTheBacklogIsShort) {
  ASSERT_EQ(launched_.size(), 2u);
  Submit(queues_[2]);
  now_ += 6'000;
  Step();
  EXPECT_EQ(launched_.size(), 3u);
}

TEST_F(CoRunSetTest, CountsWhatAPlanWasLaunchedWithUntilItEnds) {
  ASSERT_EQ(launched_.size(), 2u);
  Finish(queues_[0], 1);
  Submit(queues_[2]);
  Step();
  EXPECT_EQ(launched_.size(), 3u);
}

TEST_F(SchedulerTest, OrdersACrossQueueWaitOnTheDevice) {
  const QueueId a = AddQueue(1), b = AddQueue(2);
  const OpId producer = Submit(a);
  const OpId consumer = Submit(b, {{a, 1}});
  Step();
  ASSERT_THAT(launched_, ElementsAre(producer, consumer));
  ASSERT_NE(lane_[producer], lane_[consumer]);
  EXPECT_EQ(order_mask_[consumer], 1u << lane_[producer]);
}

// As runs do that stand for a batch.
TEST_F(SchedulerTest, AWaitForATicketThatAnOpCoversIsForThatOp) {
  const QueueId a = AddQueue(1), b = AddQueue(2);
  const OpId before = Submit(a);  // ticket 1
  covered_ = 5;
  const OpId producer = Submit(a);  // tickets 2 to 7
  covered_ = 0;
  const OpId consumer = Submit(b, {{a, 4}});
  Step();
  ASSERT_THAT(launched_, ElementsAre(before, producer));
  Finish(a, 1);
  now_ += 1'000'000;
  Step();
  ASSERT_THAT(launched_, ElementsAre(before, producer, consumer));
  ASSERT_NE(lane_[producer], lane_[consumer]);
  EXPECT_EQ(order_mask_[consumer], 1u << lane_[producer]);
}

TEST_F(SchedulerTest, BlocksAWaitWhoseProducerIsNotThereYet) {
  const QueueId a = AddQueue(1), b = AddQueue(2);
  const OpId consumer = Submit(b, {{a, 1}});
  Step();
  EXPECT_THAT(launched_, IsEmpty());
  const OpId producer = Submit(a);
  Step();
  EXPECT_THAT(launched_, ElementsAre(producer, consumer));
}

TEST_F(SchedulerTest, FailsAWaitThatIsNeverSatisfiedAndGoesOn) {
  const QueueId a = AddQueue(1), b = AddQueue(2);
  const OpId stuck = Submit(b, {{a, 7}});
  const OpId after = Submit(b);
  Step();
  now_ += 999'000'000;
  Step();
  EXPECT_THAT(completed_, IsEmpty());
  now_ += 2'000'000;
  Step();
  EXPECT_THAT(completed_, ElementsAre(stuck));
  EXPECT_EQ(failure_[stuck].status, CONCERT_ABI_DEADLINE_EXCEEDED);
  EXPECT_EQ(failure_[stuck].ToString(),
            "waited 1000 ms for queue 0 of session 1 to reach 7; it stood at 0");
  EXPECT_THAT(launched_, ElementsAre(after));
}

TEST_F(SchedulerTest, AFailedOpCompletesOnlyAfterAllBeforeIt) {
  const QueueId queue = AddQueue();
  const OpId good = Submit(queue);
  const OpId bad =
      Submit(queue, {}, RunsOn::kSms,
             kernels::InvalidArgument(CONCERT_MESSAGE_FIELD_RANGE, CONCERT_FIELD_M, 0, 1, 2));
  const OpId later = Submit(queue);
  Step();
  EXPECT_THAT(launched_, ElementsAre(good));
  EXPECT_THAT(completed_, IsEmpty());
  Finish(queue, 1);
  Step();
  EXPECT_THAT(completed_, ElementsAre(bad));
  EXPECT_THAT(released_, ElementsAre(good, bad));
  EXPECT_THAT(launched_, ElementsAre(good, later));
}

TEST_F(SchedulerTest, AWatchedWaitHoldsTheOpUntilItIsSatisfied) {
  const QueueId queue = AddQueue();
  const OpId id = scheduler_.AllocateOp();
  OpSlot& slot = scheduler_.slot(id);
  slot.op.ticket = 1;
  slot.watched_waits = 1;
  scheduler_.Submit(id, queue, now_);
  Step();
  EXPECT_THAT(launched_, IsEmpty());
  scheduler_.WaitSatisfied(id, 0);
  Step();
  EXPECT_THAT(launched_, ElementsAre(id));
}

TEST_F(SchedulerTest, ARemovedQueueCancelsWhatHasNotStartedAndEndsWithTheRest) {
  const QueueId queue = AddQueue();
  for (int i = 0; i < 4; ++i) Submit(queue);
  Step();
  ASSERT_EQ(launched_.size(), 2u);
  scheduler_.RemoveQueue(queue, true);
  Step();
  EXPECT_FALSE(scheduler_.QueueEnded(queue));
  Finish(queue, 2);
  Step();
  EXPECT_EQ(completed_.size(), 2u);
  EXPECT_EQ(failure_[completed_[0]].status, CONCERT_ABI_CANCELLED);
  EXPECT_TRUE(scheduler_.QueueEnded(queue));
  EXPECT_TRUE(scheduler_.idle());
  scheduler_.ReclaimQueue(queue);
  EXPECT_EQ(AddQueue(), queue);  // the slot is used again
}

TEST_F(SchedulerTest, AQueueRemovedWithoutCancellingRunsOut) {
  const QueueId queue = AddQueue();
  for (int i = 0; i < 4; ++i) Submit(queue);
  Step();
  scheduler_.RemoveQueue(queue, false);
  Finish(queue, 2);
  Step();
  EXPECT_EQ(launched_.size(), 4u);
  Finish(queue, 4);
  Step();
  EXPECT_TRUE(scheduler_.QueueEnded(queue));
}

TEST_F(SchedulerTest, WaitingOnAQueueThatGoesAwayFails) {
  const QueueId a = AddQueue(1), b = AddQueue(2);
  const OpId waits = Submit(b, {{a, 3}});
  Step();
  scheduler_.RemoveQueue(a, false);
  Step();
  EXPECT_THAT(completed_, ElementsAre(waits));
  EXPECT_EQ(failure_[waits].message, CONCERT_MESSAGE_WAIT_UNREACHABLE);
  EXPECT_TRUE(scheduler_.QueueEnded(a));
}

TEST_F(SchedulerTest, FailAllEndsRunningAndQueuedOps) {
  const QueueId queue = AddQueue(), collectives = AddQueue();
  for (int i = 0; i < 3; ++i) Submit(queue);
  const OpId part = Submit(collectives, {}, RunsOn::kLinks);
  Step();
  scheduler_.FailAll({CONCERT_ABI_INTERNAL, CONCERT_MESSAGE_DEVICE_LOST, {0}});
  Step();
  EXPECT_EQ(completed_.size(), 3u);  // the rendezvous still holds the part
  scheduler_.PartLaunched(part, {}, now_);
  Step();
  EXPECT_EQ(completed_.size(), 4u);
  EXPECT_TRUE(scheduler_.idle());
  EXPECT_EQ(scheduler_.plans_in_flight(), 0);
  // What comes later runs as before.
  Submit(queue);
  Step();
  EXPECT_EQ(launched_.size(), 3u);
}

TEST_F(SchedulerTest, FailQueuedLeavesWhatRunsToItsEnd) {
  const QueueId queue = AddQueue(), collectives = AddQueue();
  const OpId runs = Submit(queue), runs_too = Submit(queue), waits = Submit(queue);
  const OpId part = Submit(collectives, {}, RunsOn::kLinks);
  Step();
  ASSERT_THAT(launched_, ElementsAre(runs, runs_too));
  scheduler_.FailQueued({CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_DRAIN_TIMEOUT, {1}});
  Step();
  EXPECT_THAT(completed_, IsEmpty());  // in its turn
  Finish(queue, 2);
  Step();
  EXPECT_THAT(completed_, ElementsAre(waits));
  EXPECT_EQ(failure_[waits].message, CONCERT_MESSAGE_DRAIN_TIMEOUT);
  // The part was matched before the rendezvous heard of it.
  scheduler_.PartLaunched(part, {}, now_);
  Finish(collectives, 1);
  Step();
  EXPECT_THAT(completed_, ElementsAre(waits));
  EXPECT_TRUE(scheduler_.idle());
}

// Keeps what the last decision saw running.
class SeesRunning : public EachAlone {
 public:
  explicit SeesRunning(std::vector<policies::RunningOp>& running) : running_(running) {}
  void Decide(const Snapshot& snapshot, Plan& plan) override {
    running_.assign(snapshot.running.begin(), snapshot.running.end());
    EachAlone::Decide(snapshot, plan);
  }

 private:
  std::vector<policies::RunningOp>& running_;
};

class RunningOpsTest : public SchedulerTest {
 protected:
  RunningOpsTest() : SchedulerTest({.depth = 3}) {
    std::unique_ptr<policies::Policy> policy = std::make_unique<SeesRunning>(running_);
    scheduler_.SetPolicy(policy);
  }
  std::vector<policies::RunningOp> running_;
};

TEST_F(RunningOpsTest, AnOpIsExpectedToEndWithItsLaunchNotWithItsLane) {
  const QueueId chain = AddQueue(), other = AddQueue();
  Submit(chain);
  Submit(chain);  // 10 us each, on one lane
  Step();
  Submit(other);
  Step();
  ASSERT_EQ(launched_.size(), 3u);
  ASSERT_EQ(running_.size(), 2u);
  ASSERT_EQ(running_[0].lane, running_[1].lane);
  EXPECT_EQ(running_[1].expected_end - running_[0].expected_end, 10'000);
}

TEST_F(SchedulerTest, HigherPriorityGoesFirstThenTheLeastServedSession) {
  flops_ = 100'000'000'000;  // beside which a fairness quantum is short
  const QueueId low = AddQueue(1, Priority::kLow), greedy = AddQueue(2), modest = AddQueue(3),
                high = AddQueue(4, Priority::kHigh);
  for (int i = 0; i < 4; ++i) Submit(greedy);
  Step();
  Finish(greedy, 2);
  Step();
  Finish(greedy, 4);
  Step();
  launched_.clear();
  const OpId low_op = Submit(low), greedy_op = Submit(greedy), modest_op = Submit(modest),
             high_op = Submit(high);
  Step();
  EXPECT_THAT(launched_, ElementsAre(high_op, modest_op));
  Finish(high, 1);
  Finish(modest, 1);
  Step();
  EXPECT_THAT(launched_, ElementsAre(high_op, modest_op, greedy_op, low_op));
}

TEST_F(SchedulerTest, RecordsPlansWithWhatWasPredictedAndWhatCame) {
  const QueueId queue = AddQueue(9);
  Submit(queue);
  Step();
  ASSERT_EQ(actions_.launches.size(), 1u);
  const LaunchRequest launch = actions_.launches[0];
  now_ += 42'000;
  Finish(queue, 1);
  ASSERT_EQ(scheduler_.op_records().size(), 1u);
  const OpRecord& op = scheduler_.op_records()[0];
  EXPECT_EQ(op.session, 9u);
  EXPECT_EQ(op.finished_at - op.started_at, 42'000);
  EXPECT_EQ(op.lane, policies::kFirstNormalLane);
  ASSERT_EQ(scheduler_.plan_records().size(), 1u);
  const PlanRecord& plan = scheduler_.plan_records()[0];
  // With the launch latency, which nothing that ran before hides.
  const policies::DeviceModel device;
  EXPECT_FLOAT_EQ(plan.predicted_us, 10 + device.launch_us + device.launch_op_us);
  EXPECT_EQ(plan.finished_at - plan.started_at, 42'000);
  EXPECT_EQ(plan.session_count, 1);
  EXPECT_EQ(plan.ops[0].session, 9u);
  // The device is told which plan it launches, and why.
  EXPECT_EQ(launch.plan, plan.plan);
  EXPECT_EQ(launch.reason, plan.reason);
}

TEST_F(SchedulerTest, RecordsNameThePriorityClassOfFailedOpsToo) {
  const QueueId high = AddQueue(1, Priority::kHigh), low = AddQueue(2, Priority::kLow);
  Submit(high);
  Submit(low, {}, RunsOn::kSms, {CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_DRAIN_TIMEOUT, {1}});
  Step();
  Finish(high, 1);
  ASSERT_EQ(scheduler_.op_records().size(), 2u);
  EXPECT_EQ(scheduler_.op_records()[0].session, 2u);
  EXPECT_EQ(scheduler_.op_records()[0].priority, Priority::kLow);
  EXPECT_EQ(scheduler_.op_records()[1].priority, Priority::kHigh);
}

TEST_F(SchedulerTest, OneOpIsPredictedToTakeAsLongAsOneAfterTheOther) {
  const QueueId first = AddQueue(1), second = AddQueue(2);
  Submit(first);
  Submit(second, {{first, 1}});  // on another lane, behind the first
  Step();
  ASSERT_EQ(launched_.size(), 2u);
  ASSERT_NE(lane_[launched_[0]], lane_[launched_[1]]);
  now_ += 20'000;
  Finish(first, 1);
  now_ += 10'000;
  Finish(second, 1);
  const std::vector<PlanRecord>& plans = scheduler_.plan_records();
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_GT(plans[1].predicted_us, plans[0].predicted_us) << "it waits for the other lane";
  for (const PlanRecord& plan : plans) EXPECT_FLOAT_EQ(plan.serial_us, plan.predicted_us);
}

}  // namespace
}  // namespace concert::daemon
