// The scheduler as a pure step: events in, actions out, no threads and no device.
#include "daemon/sched/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

namespace concert::daemon {
namespace {

using kernels::Failure;
using policies::Category;
using policies::Form;
using policies::Plan;
using policies::Priority;
using policies::Snapshot;
using testing::ElementsAre;
using testing::IsEmpty;

// Launches every ready op as a plan of its own: GEMMs behind their predecessor or on alternating
// lanes.
class EachAlone : public policies::Policy {
 public:
  void Decide(const Snapshot& snapshot, Plan& plan) override {
    plan.Clear();
    const policies::ReadyOp& op = snapshot.ready[0];
    Lane lane = policies::kCollectiveLane;
    if (op.work.category != Category::kCollective) {
      lane = op.after != policies::kNoLane ? op.after : static_cast<Lane>(next_++ % 2);
    }
    plan.AddSingle(0, Form::kSingle, lane, 10);
    plan.predicted_us = plan.serial_us = 10;
  }

 private:
  int next_ = 0;
};

class SchedulerTest : public testing::Test {
 protected:
  explicit SchedulerTest(SchedulerOptions options = {.depth = 2,
                                                     .backlog_ns = 0,
                                                     .wait_timeout_ns = 1'000'000'000})
      : scheduler_(options, policies::DeviceModel{}, std::make_unique<EachAlone>()) {}

  QueueId AddQueue(uint32_t session = 1, Priority priority = Priority::kNormal) {
    const QueueId queue = scheduler_.AddQueue(session, priority);
    session_of_[queue] = session;
    return queue;
  }

  OpId Submit(QueueId queue, std::vector<OpSlot::LocalWait> waits = {},
              Category category = Category::kGemm, Failure failure = {}) {
    const OpId id = scheduler_.AllocateOp();
    OpSlot& slot = scheduler_.slot(id);
    slot.op.session = session_of_[queue];
    slot.op.ticket = ++tickets_[queue];
    slot.op.work = {.category = category,
                    .m = 64,
                    .n = 64,
                    .k = 64,
                    .batch = 1,
                    .flops = flops_,
                    .hbm_bytes = 1000};
    for (const OpSlot::LocalWait& wait : waits) {
      slot.op.waits[slot.op.wait_count++] = {
          CONCERT_TIMELINE_ID(session_of_[wait.queue], wait.queue), wait.value};
      slot.local_waits[slot.local_wait_count++] = wait;
    }
    slot.failure = failure;
    scheduler_.Submit(id, queue, now_);
    return id;
  }

  // Steps and files the actions.
  void Step() {
    actions_.Clear();
    scheduler_.Step(now_, actions_);
    for (const Action& action : actions_.list) {
      for (const OpId op : actions_.OpsOf(action)) {
        switch (action.type) {
          case Action::Type::kLaunch:
            launched_.push_back(op);
            order_mask_[op] = action.order_mask;
            lane_[op] = action.lane;
            launch_of_[op] = action;
            break;
          case Action::Type::kOffer:
            offered_.push_back(op);
            order_mask_[op] = action.order_mask;
            break;
          case Action::Type::kComplete:
            completed_.push_back(op);
            failure_[op] = scheduler_.slot(op).failure;
            break;
          case Action::Type::kRelease:
            released_.push_back(op);
            scheduler_.FreeOp(op);
            break;
        }
      }
    }
  }

  void Finish(QueueId queue, uint64_t ticket) { scheduler_.TimelineSeen(queue, ticket, now_); }

  Scheduler scheduler_;
  Time now_ = 1;
  uint64_t flops_ = 1000;  // of the next op
  Actions actions_;
  std::map<QueueId, uint32_t> session_of_;
  std::map<QueueId, uint64_t> tickets_;
  std::vector<OpId> launched_, offered_, completed_, released_;
  std::map<OpId, uint16_t> order_mask_;
  std::map<OpId, Lane> lane_;
  std::map<OpId, Action> launch_of_;
  std::map<OpId, Failure> failure_;
};

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

TEST_F(SchedulerTest, OrdersACrossQueueWaitOnTheDevice) {
  const QueueId a = AddQueue(1), b = AddQueue(2);
  const OpId producer = Submit(a);
  const OpId consumer = Submit(b, {{a, 1}});
  Step();
  ASSERT_THAT(launched_, ElementsAre(producer, consumer));
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
            "waited 1000 ms for timeline 0 of session 1 to reach 7; it stood at 0");
  EXPECT_THAT(launched_, ElementsAre(after));
}

TEST_F(SchedulerTest, AFailedOpCompletesOnlyAfterAllBeforeIt) {
  const QueueId queue = AddQueue();
  const OpId good = Submit(queue);
  const OpId bad =
      Submit(queue, {}, Category::kGemm,
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

TEST_F(SchedulerTest, FollowersOfAnOfferedPartWaitForItsLaunchOnly) {
  const QueueId queue = AddQueue();
  const OpId part = Submit(queue, {}, Category::kCollective);
  const OpId after = Submit(queue);
  Step();
  EXPECT_THAT(offered_, ElementsAre(part));
  EXPECT_THAT(launched_, IsEmpty());
  scheduler_.PartLaunched(part, now_);
  Step();
  EXPECT_THAT(launched_, ElementsAre(after));
  EXPECT_EQ(order_mask_[after], 1u << policies::kCollectiveLane);
}

TEST_F(SchedulerTest, AnOfferedPartDoesNotUseUpTheDepth) {
  const QueueId collectives = AddQueue(), gemms = AddQueue();
  Submit(collectives, {}, Category::kCollective);
  Submit(gemms);
  Submit(gemms);
  Step();
  EXPECT_EQ(offered_.size(), 1u);
  EXPECT_EQ(launched_.size(), 2u);
}

TEST_F(SchedulerTest, CollectivesAreOfferedEvenAtFullDepth) {
  const QueueId gemms = AddQueue(), collectives = AddQueue();
  for (int i = 0; i < 4; ++i) Submit(gemms);
  Step();
  ASSERT_EQ(launched_.size(), 2u);
  Submit(collectives, {}, Category::kCollective);
  Step();
  EXPECT_EQ(offered_.size(), 1u);
}

TEST_F(SchedulerTest, AFailedPartCompletesInOrder) {
  const QueueId queue = AddQueue();
  const OpId gemm = Submit(queue);
  const OpId part = Submit(queue, {}, Category::kCollective);
  const OpId after = Submit(queue);
  Step();
  ASSERT_THAT(offered_, ElementsAre(part));
  scheduler_.PartFailed(
      part, {CONCERT_ABI_DEADLINE_EXCEEDED, CONCERT_MESSAGE_RANK_MISSING, {1, 1, 0, 5}});
  Step();
  EXPECT_THAT(completed_, IsEmpty());  // the GEMM before it still runs
  Finish(queue, 1);
  Step();
  EXPECT_THAT(completed_, ElementsAre(part));
  EXPECT_THAT(launched_, ElementsAre(gemm, after));
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
  const OpId part = Submit(collectives, {}, Category::kCollective);
  Step();
  scheduler_.FailAll({CONCERT_ABI_INTERNAL, CONCERT_MESSAGE_DEVICE_LOST, {0}});
  Step();
  EXPECT_EQ(completed_.size(), 3u);  // the rendezvous still holds the part
  scheduler_.PartLaunched(part, now_);
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
  const OpId part = Submit(collectives, {}, Category::kCollective);
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
  scheduler_.PartLaunched(part, now_);
  Finish(collectives, 1);
  Step();
  EXPECT_THAT(completed_, ElementsAre(waits));
  EXPECT_TRUE(scheduler_.idle());
}

// All ready GEMMs in one group on lane 0; remembers what it is told.
class OneGroup : public policies::Policy {
 public:
  explicit OneGroup(std::vector<policies::Outcome>* learned) : learned_(learned) {}
  void Decide(const Snapshot& snapshot, Plan& plan) override {
    plan.Clear();
    for (uint16_t i = 0; i < snapshot.ready.size(); ++i) plan.ops[plan.op_count++] = i;
    plan.launches[plan.launch_count++] = {.count = plan.op_count,
                                          .form = Form::kGroup,
                                          .lane = 0,
                                          .sm_budget = 66,
                                          .predicted_us = 20};
    plan.predicted_us = 20;
    plan.serial_us = 50;
    plan.tag = ++tag_;
  }
  void Learn(const policies::Outcome& outcome) override { learned_->push_back(outcome); }

 private:
  std::vector<policies::Outcome>* learned_;
  uint64_t tag_ = 0;
};

class GroupTest : public SchedulerTest {
 protected:
  GroupTest() { UseGroups(&learned_); }
  void UseGroups(std::vector<policies::Outcome>* learned) {
    std::unique_ptr<policies::Policy> policy = std::make_unique<OneGroup>(learned);
    scheduler_.SetPolicy(policy);
  }
  // A 16 x 16 x 16 GEMM with operands at the addresses.
  OpId SubmitGemm(QueueId queue, kernels::Address a, kernels::Address w, kernels::Address d,
                  std::vector<OpSlot::LocalWait> waits = {}) {
    gemm_ = {.m = 16,
             .n = 16,
             .k = 16,
             .batch = 1,
             .a = a,
             .w = w,
             .d = d,
             .lda = 16,
             .ldw = 16,
             .ldd = 16,
             .dtype = policies::Dtype::kBf16};
    const OpId op = Submit(queue, std::move(waits));
    scheduler_.slot(op).op.kind = CONCERT_OP_GEMM;
    scheduler_.slot(op).op.gemm = gemm_;
    return op;
  }

  kernels::GemmArgs gemm_;
  std::vector<policies::Outcome> learned_;
};

TEST_F(GroupTest, InputsAreSettledOnceWhatTheyNeedWasSeenToFinish) {
  const QueueId a = AddQueue(1), b = AddQueue(2);
  const OpId first = SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  EXPECT_TRUE(launch_of_[first].inputs_settled);
  // On the same lane, so that no order is needed; but unfinished all the same.
  const OpId second = SubmitGemm(a, 0x3000, 0x2000, 0x4000);
  Step();
  EXPECT_EQ(order_mask_[second], 0);
  EXPECT_FALSE(launch_of_[second].inputs_settled);
  Finish(a, 2);
  const OpId third = SubmitGemm(b, 0x4000, 0x2000, 0x5000, {{a, 2}});
  Step();
  EXPECT_TRUE(launch_of_[third].inputs_settled);
  const OpId fourth = SubmitGemm(a, 0x5000, 0x2000, 0x6000, {{b, 1}});
  Step();
  EXPECT_FALSE(launch_of_[fourth].inputs_settled);
}

TEST_F(GroupTest, WeightsAreSettledUnlessSomethingInFlightWritesThem) {
  const QueueId a = AddQueue(1), b = AddQueue(2);
  const OpId first = SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  EXPECT_TRUE(launch_of_[first].weights_settled);
  const OpId reads_d = SubmitGemm(a, 0x3000, 0x2000, 0x4000);
  Step();
  EXPECT_TRUE(launch_of_[reads_d].weights_settled);  // through A, which is no weight
  Finish(a, 1);
  Step();
  const OpId w_is_d = SubmitGemm(b, 0x1000, 0x41f0, 0x5000);  // the last bytes of what is written
  Step();
  EXPECT_FALSE(launch_of_[w_is_d].weights_settled);
  Finish(a, 2), Finish(b, 1);
  Step();
  const OpId later = SubmitGemm(b, 0x1000, 0x4000, 0x6000);
  Step();
  EXPECT_TRUE(launch_of_[later].weights_settled);
}

TEST_F(GroupTest, WeightsThatAnOfferedCollectiveWritesAreNotSettled) {
  std::unique_ptr<policies::Policy> alone = std::make_unique<EachAlone>();
  scheduler_.SetPolicy(alone);
  const QueueId a = AddQueue(1), b = AddQueue(2);
  const OpId part = Submit(a, {}, Category::kCollective);
  scheduler_.slot(part).op.kind = CONCERT_OP_ALL_REDUCE;
  scheduler_.slot(part).op.collective = {
      .src = 0x2000, .dst = 0x2000, .src_bytes = 64, .dst_bytes = 64};
  Step();
  UseGroups(&learned_);
  const OpId before = SubmitGemm(b, 0x1000, 0x2000, 0x3000);
  Step();
  EXPECT_FALSE(launch_of_[before].weights_settled);
  Finish(b, 1);
  scheduler_.PartFailed(part, {CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_RANK_LEFT, {}});
  Step();
  const OpId after = SubmitGemm(b, 0x1000, 0x2000, 0x3000);
  Step();
  EXPECT_TRUE(launch_of_[after].weights_settled);
}

TEST_F(GroupTest, TheSameBatchComesInTheSameOrderWhateverTheSlotsAndServiceOfOthers) {
  std::vector<QueueId> queues;
  for (uint32_t i = 0; i < 6; ++i) queues.push_back(AddQueue(1 + i / 2));
  for (uint64_t round = 1; round <= 20; ++round) {
    launched_.clear();
    std::vector<OpId> submitted;
    for (const QueueId queue : queues) {
      flops_ = 1'000'000 * (1 + queue);  // so that sessions are served unequally
      submitted.push_back(SubmitGemm(queue, 0x1000, 0x2000, 0x3000));
    }
    Step();
    EXPECT_EQ(launched_, submitted) << "round " << round;
    // Ends in another order every time, so that slots are used again in another order.
    for (size_t i = 0; i < queues.size(); ++i) Finish(queues[(i * 5 + round) % 6], round);
    Step();
  }
}

TEST_F(GroupTest, LearnsFromAPlanThatRanAlone) {
  const QueueId a = AddQueue(1), b = AddQueue(2);
  SubmitGemm(a, 0x1000, 0x2000, 0x3000), SubmitGemm(b, 0x1000, 0x2000, 0x4000);
  Step();
  now_ += 20'000;
  SubmitGemm(a, 0x1000, 0x2000, 0x3000);  // behind it on its lane
  Step();
  Finish(a, 1);
  now_ += 5'000;
  Step();
  EXPECT_THAT(learned_, IsEmpty());
  Finish(b, 1);
  Step();
  ASSERT_EQ(learned_.size(), 1u);
  EXPECT_EQ(learned_[0].tag, 1u);
  EXPECT_FLOAT_EQ(learned_[0].actual_us, 25);
  EXPECT_FLOAT_EQ(learned_[0].predicted_us, 23);  // launched on an idle GPU
  now_ += 21'000;
  Finish(a, 2);
  Step();
  ASSERT_EQ(learned_.size(), 2u);
  EXPECT_EQ(learned_[1].tag, 2u);
  EXPECT_FLOAT_EQ(learned_[1].actual_us, 21);  // from the end of the first
  EXPECT_FLOAT_EQ(learned_[1].predicted_us, 20);
}

TEST_F(GroupTest, DoesNotLearnFromWhatFailedOrHadCompany) {
  const QueueId a = AddQueue(1), b = AddQueue(2);
  const OpId failed = SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  scheduler_.LaunchFailed(failed, {CONCERT_ABI_INTERNAL, CONCERT_MESSAGE_DEVICE_ERROR, {}});
  now_ += 20'000;
  Finish(a, 1);
  Step();
  EXPECT_THAT(learned_, IsEmpty());
  // Two plans whose ends are seen together.
  SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  SubmitGemm(b, 0x1000, 0x2000, 0x4000);
  Step();
  now_ += 40'000;
  Finish(b, 1), Finish(a, 2);
  Step();
  EXPECT_THAT(learned_, IsEmpty());
  // A collective beside it.
  SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  std::unique_ptr<policies::Policy> alone = std::make_unique<EachAlone>();
  scheduler_.SetPolicy(alone);
  const OpId part = Submit(b, {}, Category::kCollective);
  Step();
  scheduler_.SetPolicy(alone);
  scheduler_.PartLaunched(part, now_);
  now_ += 20'000;
  Finish(a, 3);
  Step();
  EXPECT_THAT(learned_, IsEmpty());
}

TEST_F(GroupTest, ANewPolicyLearnsNothingFromThePlansOfTheOld) {
  const QueueId a = AddQueue(1);
  SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  std::vector<policies::Outcome> of_the_new;
  UseGroups(&of_the_new);
  now_ += 20'000;
  Finish(a, 1);
  Step();
  EXPECT_THAT(of_the_new, IsEmpty());
  SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  now_ += 20'000;
  Finish(a, 2);
  Step();
  EXPECT_EQ(of_the_new.size(), 1u);
  UseGroups(&learned_);  // the test's list outlives the policy
}

TEST_F(GroupTest, OpsOfAGroupStartTogetherAndShareItsTime) {
  const QueueId a = AddQueue(1), b = AddQueue(2);
  SubmitGemm(a, 0x1000, 0x2000, 0x3000), SubmitGemm(b, 0x1000, 0x2000, 0x4000);
  Step();
  now_ += 10'000;
  Finish(a, 1);
  now_ += 6'000;
  Finish(b, 1);
  const std::vector<OpRecord>& ops = scheduler_.op_records();
  ASSERT_EQ(ops.size(), 2u);
  EXPECT_EQ(ops[0].started_at, ops[1].started_at);
  EXPECT_EQ(ops[1].finished_at - ops[1].started_at, 16'000);
  // Equal ops: 10 us shared, then 6 us of the second alone.
  EXPECT_FLOAT_EQ(ops[0].gpu_us, 5);
  EXPECT_FLOAT_EQ(ops[1].gpu_us, 11);
  EXPECT_EQ(ops[0].form, Form::kGroup);
  const PlanRecord& plan = scheduler_.plan_records().at(0);
  EXPECT_EQ(plan.finished_at - plan.started_at, 16'000);
  EXPECT_EQ(plan.sm_count, 66);
  EXPECT_EQ(plan.ops_by_form[static_cast<size_t>(Form::kGroup)], 2);
  EXPECT_FLOAT_EQ(ops[0].serial_us + ops[1].serial_us, plan.serial_us);
}

// Offers all that is ready at once.
class AllCollectives : public policies::Policy {
 public:
  void Decide(const Snapshot& snapshot, Plan& plan) override {
    plan.Clear();
    for (size_t i = 0; i < snapshot.ready.size() && !plan.full(); ++i) {
      plan.AddSingle(static_cast<uint16_t>(i), Form::kSingle, policies::kCollectiveLane, 10);
    }
  }
};

TEST_F(SchedulerTest, OffersABoundedNumberOfPartsHoweverManyAreReady) {
  std::unique_ptr<policies::Policy> all = std::make_unique<AllCollectives>();
  scheduler_.SetPolicy(all);
  // One alone, so that full plans do not add up to the bound.
  Submit(AddQueue(), {}, Category::kCollective);
  Step();
  for (int i = 0; i < 1'200; ++i) Submit(AddQueue(), {}, Category::kCollective);
  for (int i = 0; i < 40; ++i) Step();
  EXPECT_EQ(offered_.size(), 1'024u);
  scheduler_.PartFailed(offered_[0], {CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_RANK_LEFT, {}});
  Step();
  EXPECT_EQ(offered_.size(), 1'025u);
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
  now_ += 42'000;
  Finish(queue, 1);
  ASSERT_EQ(scheduler_.op_records().size(), 1u);
  const OpRecord& op = scheduler_.op_records()[0];
  EXPECT_EQ(op.session, 9u);
  EXPECT_EQ(op.finished_at - op.started_at, 42'000);
  ASSERT_EQ(scheduler_.plan_records().size(), 1u);
  const PlanRecord& plan = scheduler_.plan_records()[0];
  // With the launch latency, which nothing that ran before hides.
  EXPECT_FLOAT_EQ(plan.predicted_us, 10 + policies::DeviceModel{}.launch_us);
  EXPECT_EQ(plan.finished_at - plan.started_at, 42'000);
  EXPECT_EQ(plan.session_count, 1);
  EXPECT_EQ(plan.ops[0].session, 9u);
}

// A seeded random walk over every event, checked against what must always hold: each queue's ops
// end in ticket order and exactly once, an op is never launched before what it waits for, and
// everything drains.
TEST_F(SchedulerTest, RandomWalkKeepsTheInvariants) {
  const uint32_t seed = testing::UnitTest::GetInstance()->random_seed() + 17;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto pick = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  std::vector<QueueId> queues;
  for (uint32_t i = 0; i < 6; ++i)
    queues.push_back(AddQueue(1 + i % 3, static_cast<Priority>(static_cast<int>(pick(3)) - 1)));
  std::map<QueueId, uint64_t> on_device;  // newest launched ticket
  std::map<OpId, std::pair<QueueId, uint64_t>> op_of;
  std::map<QueueId, std::deque<uint64_t>> outstanding;
  std::set<std::pair<QueueId, uint64_t>> offered;
  size_t seen_launched = 0, seen_offered = 0, seen_released = 0;

  const auto step = [&] {
    now_ += 1000;
    Step();
    for (; seen_launched < launched_.size(); ++seen_launched) {
      const auto [queue, ticket] = op_of[launched_[seen_launched]];
      ASSERT_GT(ticket, on_device[queue]);
      on_device[queue] = ticket;
    }
    for (; seen_offered < offered_.size(); ++seen_offered)
      offered.insert(op_of[offered_[seen_offered]]);
    for (; seen_released < released_.size(); ++seen_released) {
      const auto [queue, ticket] = op_of[released_[seen_released]];
      ASSERT_EQ(outstanding[queue].front(), ticket) << "out of order in queue " << queue;
      outstanding[queue].pop_front();
    }
  };
  const auto submit = [&] {
    const QueueId queue = queues[pick(6)];
    std::vector<OpSlot::LocalWait> waits;
    const QueueId other = queues[pick(6)];
    // Only on what is submitted already, so that no cycle of waits can form.
    if (pick(3) == 0 && other != queue && tickets_[other] > 0)
      waits.push_back({other, 1 + pick(static_cast<uint32_t>(tickets_[other]))});
    const Failure failure =
        pick(10) == 0 ? kernels::InvalidArgument(CONCERT_MESSAGE_OVERFLOW, 1) : Failure{};
    const OpId id =
        Submit(queue, waits, pick(5) == 0 ? Category::kCollective : Category::kGemm, failure);
    op_of[id] = {queue, tickets_[queue]};
    outstanding[queue].push_back(tickets_[queue]);
  };
  const auto settle_offered = [&](bool fail) {
    if (offered.empty()) return;
    const auto [queue, ticket] = *offered.begin();
    for (const auto& [id, where] : op_of) {
      if (where != *offered.begin()) continue;
      if (fail) {
        scheduler_.PartFailed(id, {CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_RANK_LEFT, {}});
      } else {
        scheduler_.PartLaunched(id, now_);
        on_device[queue] = ticket;
      }
      break;
    }
    offered.erase(offered.begin());
  };
  for (int i = 0; i < 20'000; ++i) {
    switch (pick(4)) {
      case 0:
        submit();
        break;
      case 1: {
        const QueueId queue = queues[pick(6)];
        Finish(queue, on_device[queue]);
        break;
      }
      case 2:
        settle_offered(pick(4) == 0);
        break;
      default:
        step();
        if (HasFatalFailure()) return;
    }
  }
  for (int i = 0; i < 50'000 && !scheduler_.idle(); ++i) {
    settle_offered(false);
    for (const QueueId queue : queues) Finish(queue, on_device[queue]);
    step();
    if (HasFatalFailure()) return;
  }
  EXPECT_TRUE(scheduler_.idle());
  EXPECT_EQ(scheduler_.plans_in_flight(), 0);
}

}  // namespace
}  // namespace concert::daemon
