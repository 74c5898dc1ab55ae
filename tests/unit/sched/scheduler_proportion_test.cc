// A step costs what changed, not what exists, and no kind of work keeps the others waiting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
