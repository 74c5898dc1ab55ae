// A step costs what changed, not what exists, and no kind of work keeps the others waiting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "tests/unit/sched/scheduler_fixture.h"

namespace concert::daemon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class ProportionTest : public SchedulerTest {
 protected:
  // Queues examined while `queue` runs an op from submission to release.
  uint64_t ExaminedByOneOp(QueueId queue) {
    const uint64_t before = scheduler_.examined();
    Submit(queue);
    Step();
    EXPECT_EQ(launched_.size(), 1u);
    Finish(queue, tickets_[queue]);
    Step();
    launched_.clear();
    now_ += 1'000;
    Step();
    return scheduler_.examined() - before;
  }
};

TEST_F(ProportionTest, AnOpExaminesItsOwnQueueHoweverManyAreBlockedOrIdle) {
  const QueueId healthy = AddQueue(1), never = AddQueue(2);
  const uint64_t alone = ExaminedByOneOp(healthy);
  EXPECT_LE(alone, 2u);
  for (int i = 0; i < 2'000; ++i) Submit(AddQueue(2), {{never, 1}});
  for (int i = 0; i < 2'000; ++i) AddQueue(2);
  for (int i = 0; i < 10; ++i) Step();
  EXPECT_EQ(ExaminedByOneOp(healthy), alone);
}

TEST_F(ProportionTest, ALaunchWakesThoseWhoseValueItReachesAndNoOthers) {
  const QueueId awaited = AddQueue(1);
  const OpId second = Submit(AddQueue(2), {{awaited, 2}});
  const OpId first = Submit(AddQueue(2), {{awaited, 1}});
  Submit(AddQueue(2), {{awaited, 3}});
  Step();
  const uint64_t before = scheduler_.examined();
  const OpId producer = Submit(awaited);
  Step();
  EXPECT_THAT(launched_, ElementsAre(producer, first));
  EXPECT_EQ(scheduler_.examined() - before, 2u);  // the awaited queue and the one that it woke
  const OpId next = Submit(awaited);
  Finish(awaited, 1);
  Finish(2, 1);
  Step();
  EXPECT_THAT(launched_, ElementsAre(producer, first, next, second));
}

TEST_F(ProportionTest, ManyWaitsForOneValueAreWokenInPortions) {
  const QueueId awaited = AddQueue(1), healthy = AddQueue(3);
  constexpr int kWaiting = 2'000;
  for (int i = 0; i < kWaiting; ++i) {
    Submit(AddQueue(2), {{awaited, 1}});
    Step();
  }
  ASSERT_THAT(launched_, IsEmpty());
  Submit(awaited);
  Step();
  uint64_t most = 0;
  for (int i = 0; i < 100; ++i) {
    const uint64_t before = scheduler_.examined();
    Step();
    most = std::max(most, scheduler_.examined() - before);
  }
  EXPECT_LE(most, uint64_t{Readiness::kWakesPerStep});
  EXPECT_EQ(scheduler_.ready_count() + launched_.size(), kWaiting + 1u);
  (void)healthy;
}

// A flood of ops that admission refused, more than one step may complete.
TEST_F(ProportionTest, RefusedOpsDoNotKeepOthersFromLaunching) {
  for (int i = 0; i < 400; ++i) {
    const QueueId queue = AddQueue(2);
    for (int j = 0; j < 4; ++j) {
      Submit(queue, {}, RunsOn::kSms, kernels::InvalidArgument(CONCERT_MESSAGE_OVERFLOW, 1));
    }
  }
  const OpId good = Submit(AddQueue(1, Priority::kHigh));
  Step();
  EXPECT_THAT(launched_, ElementsAre(good));
  for (int i = 0; i < 100 && completed_.size() < 1'600; ++i) Step();
  EXPECT_EQ(completed_.size(), 1'600u);
}

TEST_F(ProportionTest, ManyEndsDoNotKeepOthersFromLaunching) {
  std::vector<QueueId> queues;
  for (int i = 0; i < 2'000; ++i) queues.push_back(AddQueue(2));
  for (const QueueId queue : queues) {
    Submit(queue);
    Step();
    Finish(queue, 1);
  }
  launched_.clear();
  const OpId good = Submit(AddQueue(1));
  Step();
  EXPECT_THAT(launched_, ElementsAre(good));
}

// Launches all that is ready, each op by itself.
class EachAtOnce : public policies::Policy {
 public:
  void Decide(const Snapshot& snapshot, Plan& plan) override {
    plan.Clear();
    for (uint16_t i = 0; i < snapshot.ready.size() && !plan.full(); ++i) {
      plan.AddSingle(i, Form::kSingle, static_cast<Lane>(i % 2), 10);
    }
    plan.predicted_us = plan.serial_us = 10;
  }
};

class ManyEndsTest : public SchedulerTest {
 protected:
  ManyEndsTest() : SchedulerTest({.depth = 64}) {
    std::unique_ptr<policies::Policy> policy = std::make_unique<EachAtOnce>();
    scheduler_.SetPolicy(policy);
  }
  // As the dispatcher does after every step. What is released later has no queue any more.
  void ReclaimEndedQueues() {
    for (const QueueId queue : scheduler_.ended_queues()) {
      scheduler_.ReclaimQueue(queue);
      reclaimed_.insert(queue);
    }
    scheduler_.ended_queues().clear();
  }

  std::set<QueueId> reclaimed_;
};

// Of 1,200 ops that are seen to end at once, a few steps release some each.
TEST_F(ManyEndsTest, AQueueEndsOnlyWhenItsLastOpIsReleased) {
  std::vector<QueueId> queues;
  std::map<OpId, QueueId> queue_of;
  for (int i = 0; i < 300; ++i) queues.push_back(AddQueue());
  for (const QueueId queue : queues) {
    for (int op = 0; op < 4; ++op) queue_of[Submit(queue)] = queue;
  }
  while (launched_.size() < queue_of.size()) {
    const size_t before = launched_.size();
    Step();
    ASSERT_GT(launched_.size(), before);
  }
  for (const QueueId queue : queues) Finish(queue, 4);
  size_t removed = 0;
  for (int step = 0; released_.size() < queue_of.size(); ++step) {
    ASSERT_LT(step, 100);
    // Some before the step, as clients that have seen the last op end, the others behind it.
    for (; removed < queues.size() && removed < 150u * (step + 1); ++removed) {
      scheduler_.RemoveQueue(queues[removed], /*cancel=*/false);
    }
    const size_t before = released_.size();
    Step();
    for (size_t i = before; i < released_.size(); ++i) {
      EXPECT_FALSE(reclaimed_.contains(queue_of[released_[i]])) << "op " << released_[i];
    }
    ReclaimEndedQueues();
  }
  EXPECT_EQ(reclaimed_.size(), queues.size());
}

TEST_F(ProportionTest, WaitsTimeOutInTheOrderInWhichTheyBegan) {
  const QueueId never = AddQueue(1);
  const OpId first = Submit(AddQueue(2), {{never, 1}});
  Step();
  now_ += 500'000'000;
  const OpId second = Submit(AddQueue(2), {{never, 1}});
  Step();
  EXPECT_EQ(scheduler_.next_timeout(), 1'000'000'001);
  now_ = 1'000'000'001;
  Step();
  EXPECT_THAT(completed_, ElementsAre(first));
  EXPECT_EQ(scheduler_.next_timeout(), 1'500'000'001);
  now_ = 1'500'000'001;
  Step();
  EXPECT_THAT(completed_, ElementsAre(first, second));
  EXPECT_EQ(scheduler_.next_timeout(), Readiness::kNever);
}

TEST_F(ProportionTest, AnEarlierTicketOfAQueueThatWasMadeAnewHasEnded) {
  const QueueId anew = scheduler_.AddQueue(1, Priority::kNormal, nullptr, /*next_ticket=*/8);
  session_of_[anew] = 1;
  const OpId op = Submit(AddQueue(2), {{anew, 7}});
  Step();
  EXPECT_THAT(launched_, ElementsAre(op));
}

}  // namespace
}  // namespace concert::daemon
