// Group launches: what the scheduler says of their operands, their order, their records and
// lessons.
#include <array>
#include <vector>

#include "kernels/group/plan/work_list.h"
#include "tests/unit/sched/scheduler_fixture.h"

namespace concert::daemon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// All ready GEMMs in one group on lane 0; remembers what it is told.
class OneGroup : public policies::Policy {
 public:
  explicit OneGroup(std::vector<policies::Outcome>* learned, float predicted_us = 20,
                    const kernels::GroupWorkList* work_list = nullptr)
      : learned_(learned), predicted_us_(predicted_us), work_list_(work_list) {}
  void Decide(const Snapshot& snapshot, Plan& plan) override {
    plan.Clear();
    for (uint16_t i = 0; i < snapshot.ready.size(); ++i) plan.ops[plan.op_count++] = i;
    plan.launches[plan.launch_count++] = {.count = plan.op_count,
                                          .form = Form::kGroup,
                                          .lane = 0,
                                          .sm_budget = 66,
                                          .work_list = work_list_,
                                          .predicted_us = predicted_us_};
    plan.predicted_us = predicted_us_;
    plan.serial_us = 2.5f * predicted_us_;
    plan.tag = ++tag_;
  }
  void Learn(const policies::Outcome& outcome) override { learned_->push_back(outcome); }

 private:
  std::vector<policies::Outcome>* learned_;
  const float predicted_us_;
  const kernels::GroupWorkList* const work_list_;
  uint64_t tag_ = 0;
};

// The same, as groups and as library kernels side by side by turns of `turn` plans.
class ByTurns final : public OneGroup {
 public:
  ByTurns(std::vector<policies::Outcome>* learned, int turn) : OneGroup(learned), turn_(turn) {}
  void Decide(const Snapshot& snapshot, Plan& plan) override {
    OneGroup::Decide(snapshot, plan);
    if (plans_++ / turn_ % 2 == 1) plan.launches[0].form = Form::kStreams;
  }

 private:
  const int turn_;
  int plans_ = 0;
};

// The same, but has a name only for plans from the third on.
class NamesLate final : public OneGroup {
 public:
  using OneGroup::OneGroup;
  void Decide(const Snapshot& snapshot, Plan& plan) override {
    OneGroup::Decide(snapshot, plan);
    if (plan.tag <= 2) plan.tag = 0;
  }
};

class GroupTest : public SchedulerTest {
 protected:
  explicit GroupTest(SchedulerOptions options = {.depth = 2,
                                                 .backlog_ns = 0,
                                                 .wait_timeout_ns = 1'000'000'000})
      : SchedulerTest(options) {
    UseGroups(&learned_);
  }
  void UseGroups(std::vector<policies::Outcome>* learned,
                 const kernels::GroupWorkList* work_list = nullptr) {
    std::unique_ptr<policies::Policy> policy = std::make_unique<OneGroup>(learned, 20, work_list);
    scheduler_.SetPolicy(policy);
  }
  void Use(std::unique_ptr<policies::Policy> policy) { scheduler_.SetPolicy(policy); }
  // How many outcomes there are after each of plans of one op that end one by one, two at a time in
  // flight.
  std::vector<size_t> LearnedAfterEach(const std::vector<int>& times_us) {
    std::vector<QueueId> queues;
    const auto submit = [&] {
      if (queues.size() == times_us.size()) return;
      queues.push_back(AddQueue(static_cast<uint32_t>(queues.size() + 1)));
      SubmitGemm(queues.back(), 0x1000, 0x2000, 0x3000 + 0x1000 * queues.size());
      Step();
    };
    std::vector<size_t> learned;
    submit(), submit();
    for (size_t i = 0; i < times_us.size(); ++i) {
      now_ += Time{1000} * times_us[i];
      Finish(queues[i], 1);
      Step();
      learned.push_back(learned_.size());
      submit();
    }
    return learned;
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

TEST_F(GroupTest, InputsAreReadyOnceWhatTheyNeedWasSeenToFinish) {
  const QueueId a = AddQueue(1), b = AddQueue(2);
  const OpId first = SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  EXPECT_TRUE(launch_of_[first].inputs_ready);
  EXPECT_EQ(after_[first].launches_back, 0);
  // On the same lane, so that no order is needed; it need only follow one op of the launch before.
  const OpId second = SubmitGemm(a, 0x3000, 0x2000, 0x4000);
  Step();
  EXPECT_EQ(order_mask_[second], 0);
  EXPECT_EQ(after_[second].launches_back, 1);
  EXPECT_EQ(after_[second].op, 0);
  EXPECT_TRUE(launch_of_[second].inputs_ready);
  Finish(a, 1);
  const OpId between = SubmitGemm(b, 0x7000, 0x2000, 0x8000);
  Step();
  Finish(b, 1);
  EXPECT_TRUE(launch_of_[between].inputs_ready);
  // Its predecessor is two launches back.
  const OpId behind = SubmitGemm(a, 0x4000, 0x2000, 0x9000);
  Step();
  EXPECT_EQ(after_[behind].launches_back, 2);
  EXPECT_TRUE(launch_of_[behind].inputs_ready);
  Finish(a, 3);
  const OpId third = SubmitGemm(b, 0x4000, 0x2000, 0x5000, {{a, 2}});
  Step();
  EXPECT_TRUE(launch_of_[third].inputs_ready);
  const OpId fourth = SubmitGemm(a, 0x5000, 0x2000, 0x6000, {{b, 2}});
  Step();
  EXPECT_FALSE(launch_of_[fourth].inputs_ready);
}

TEST_F(GroupTest, DevicesRememberOnlySomeLaunches) {
  const QueueId a = AddQueue(1), b = AddQueue(2);
  SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  for (int i = 1; i <= kernels::kMaxGroupPredecessors; ++i) {
    SubmitGemm(b, 0x7000, 0x2000, 0x8000);
    Step();
    Finish(b, static_cast<uint64_t>(i));
  }
  const OpId behind = SubmitGemm(a, 0x3000, 0x2000, 0x4000);
  Step();
  EXPECT_EQ(after_[behind].launches_back, 0);
  EXPECT_FALSE(launch_of_[behind].inputs_ready);
}

TEST_F(GroupTest, WeightsAreReadyUnlessSomethingInFlightWritesThem) {
  const QueueId a = AddQueue(1), b = AddQueue(2);
  const OpId first = SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  EXPECT_TRUE(launch_of_[first].weights_ready);
  const OpId reads_d = SubmitGemm(a, 0x3000, 0x2000, 0x4000);
  Step();
  EXPECT_TRUE(launch_of_[reads_d].weights_ready);  // through A, which is no weight
  Finish(a, 1);
  Step();
  const OpId w_is_d = SubmitGemm(b, 0x1000, 0x41f0, 0x5000);  // the last bytes of what is written
  Step();
  EXPECT_FALSE(launch_of_[w_is_d].weights_ready);
  Finish(a, 2), Finish(b, 1);
  Step();
  const OpId later = SubmitGemm(b, 0x1000, 0x4000, 0x6000);
  Step();
  EXPECT_TRUE(launch_of_[later].weights_ready);
}

// While a part is only offered, nothing that depends on it can be launched.
TEST_F(GroupTest, WeightsThatALaunchedCollectiveWritesAreNotSettled) {
  std::unique_ptr<policies::Policy> alone = std::make_unique<EachAlone>();
  scheduler_.SetPolicy(alone);
  const QueueId a = AddQueue(1), b = AddQueue(2);
  const OpId part = Submit(a, {}, RunsOn::kLinks);
  scheduler_.slot(part).op.kind = CONCERT_OP_ALL_REDUCE;
  scheduler_.slot(part).op.collective = {
      .src = 0x2000, .dst = 0x2000, .src_bytes = 64, .dst_bytes = 64};
  Step();
  UseGroups(&learned_);
  const OpId before = SubmitGemm(b, 0x1000, 0x2000, 0x3000);
  Step();
  EXPECT_TRUE(launch_of_[before].weights_ready);
  Finish(b, 1);
  scheduler_.PartLaunched(part, {}, now_);
  Step();
  const OpId beside = SubmitGemm(b, 0x1000, 0x2000, 0x3000);
  Step();
  EXPECT_FALSE(launch_of_[beside].weights_ready);
  Finish(b, 2);
  Finish(a, 1);
  Step();
  const OpId after = SubmitGemm(b, 0x1000, 0x2000, 0x3000);
  Step();
  EXPECT_TRUE(launch_of_[after].weights_ready);
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
  Finish(a, 1);
  now_ += 5'000;
  Step();
  EXPECT_THAT(learned_, IsEmpty());
  Finish(b, 1);
  Step();
  ASSERT_EQ(learned_.size(), 1u);
  EXPECT_EQ(learned_[0].tag, 1u);
  EXPECT_FLOAT_EQ(learned_[0].actual_us, 25);
  // Launched on an idle GPU.
  const policies::DeviceModel device;
  EXPECT_FLOAT_EQ(learned_[0].predicted_us, 20 + device.launch_us + 2 * device.launch_op_us);
}

// The end of the first is seen late, since the second was submitted meanwhile.
TEST_F(GroupTest, TheFirstPlanOnAnIdleGpuTeachesNothingIfItIsFollowed) {
  EXPECT_THAT(LearnedAfterEach({90, 21}), ElementsAre(0, 1));
  EXPECT_EQ(learned_[0].tag, 2u);
  EXPECT_FLOAT_EQ(learned_[0].actual_us, 21);  // from the end of the first
  EXPECT_FLOAT_EQ(learned_[0].predicted_us, 20);
}

// In a steady state the next plan is launched before the one that runs has ended, and its first ops
// may end before the last of that one.
TEST_F(GroupTest, LearnsFromPlansThatOverlapByTheTimeBetweenTheirEnds) {
  const QueueId a = AddQueue(1), b = AddQueue(2), c = AddQueue(3), d = AddQueue(4), e = AddQueue(5);
  SubmitGemm(e, 0x1000, 0x2000, 0x7000);
  Step();
  SubmitGemm(a, 0x1000, 0x2000, 0x3000), SubmitGemm(b, 0x1000, 0x2000, 0x4000);
  Step();
  SubmitGemm(c, 0x1000, 0x2000, 0x5000), SubmitGemm(d, 0x1000, 0x2000, 0x6000);
  for (const QueueId queue : {e, a, c, b, d}) {
    now_ += 10'000;
    Finish(queue, 1);
    Step();
  }
  ASSERT_EQ(learned_.size(), 2u);
  EXPECT_EQ(learned_[0].tag, 2u);
  EXPECT_FLOAT_EQ(learned_[0].actual_us, 30);
  EXPECT_EQ(learned_[1].tag, 3u);
  EXPECT_FLOAT_EQ(learned_[1].actual_us, 10);
  EXPECT_FLOAT_EQ(learned_[1].predicted_us, 20);
}

// On several lanes a plan may end before an older one. What each took cannot be said, but together
// they took the time until the last end.
TEST_F(GroupTest, LearnsFromPlansThatOvertakeOneAnotherByWhatTheyTakeTogether) {
  const QueueId a = AddQueue(1), b = AddQueue(2), c = AddQueue(3), first = AddQueue(4);
  for (const auto& [queue, d] : {std::pair(first, 0x6000), {a, 0x3000}, {b, 0x4000}, {c, 0x5000}}) {
    SubmitGemm(queue, 0x1000, 0x2000, d);
    Step();
    if (queue == a) Finish(first, 1);
  }
  for (const QueueId queue : {b, a}) {
    EXPECT_THAT(learned_, IsEmpty());
    now_ += 10'000;
    Finish(queue, 1);
    Step();
  }
  ASSERT_EQ(learned_.size(), 2u);
  EXPECT_THAT((std::array{learned_[0].tag, learned_[1].tag}), UnorderedElementsAre(2u, 3u));
  EXPECT_NEAR(learned_[0].actual_us + learned_[1].actual_us, 20, 1e-3);
  EXPECT_NEAR(learned_[0].actual_us / learned_[0].predicted_us,
              learned_[1].actual_us / learned_[1].predicted_us, 1e-4);
  now_ += 15'000;
  Finish(c, 1);
  Step();
  ASSERT_EQ(learned_.size(), 3u);
  EXPECT_EQ(learned_[2].tag, 4u);
  EXPECT_FLOAT_EQ(learned_[2].actual_us, 15);
}

TEST_F(GroupTest, PlansWhoseEndsAreSeenTogetherShareTheirTime) {
  const QueueId a = AddQueue(1), b = AddQueue(2);
  SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  SubmitGemm(b, 0x1000, 0x2000, 0x4000);
  Step();
  now_ += 44'000;
  Finish(b, 1), Finish(a, 1);
  Step();
  ASSERT_EQ(learned_.size(), 2u);
  EXPECT_NEAR(learned_[0].actual_us + learned_[1].actual_us, 44, 1e-3);
  EXPECT_NEAR(learned_[0].actual_us / learned_[0].predicted_us,
              learned_[1].actual_us / learned_[1].predicted_us, 1e-4);
}

// What starts beside the end of a plan of another form takes its time.
TEST_F(GroupTest, PlansShareTheirTimeUpToOneThatIsFollowedByItsForm) {
  Use(std::make_unique<ByTurns>(&learned_, 2));
  EXPECT_THAT(LearnedAfterEach({22, 150, 22, 22, 22, 22}), ElementsAre(0, 0, 2, 2, 4, 5));
  for (const int first : {0, 2}) {
    const policies::Outcome &one = learned_[first], &next = learned_[first + 1];
    EXPECT_NEAR(one.actual_us + next.actual_us, first == 0 ? 172 : 44, 1e-3);
    EXPECT_NEAR(one.actual_us / one.predicted_us, next.actual_us / next.predicted_us, 1e-4);
  }
}

TEST_F(GroupTest, PlansThatNeverFollowTheirFormTeachAfterEight) {
  Use(std::make_unique<ByTurns>(&learned_, 1));
  EXPECT_THAT(LearnedAfterEach(std::vector<int>(10, 20)),
              ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 8, 9));
}

class OvertakingTest : public GroupTest {
 protected:
  OvertakingTest() : GroupTest({.depth = 4, .backlog_ns = 0}) {}
};

// Plans 2, 4, 1, 6, 3, 8, 5, ... end one after the other: there always is an older one that runs.
TEST_F(OvertakingTest, PlansThatOvertakeOneAnotherForEverTeachAfterSixteen) {
  std::vector<QueueId> queues;
  const auto submit = [&] {
    queues.push_back(AddQueue(static_cast<uint32_t>(queues.size() + 1)));
    SubmitGemm(queues.back(), 0x1000, 0x2000, 0x3000 + 0x1000 * queues.size());
    Step();
  };
  const auto finish = [&](int plan) {
    now_ += 30'000;
    Finish(queues[plan - 1], 1);
    Step();
    submit();
  };
  for (int i = 0; i < 4; ++i) submit();
  finish(2);
  for (int odd = 1; learned_.empty() && odd < 40; odd += 2) {
    finish(odd + 3);
    if (learned_.empty()) finish(odd);
  }
  ASSERT_EQ(learned_.size(), 16u);
  for (const policies::Outcome& outcome : learned_) EXPECT_FLOAT_EQ(outcome.actual_us, 30);
  finish(17);
  EXPECT_EQ(learned_.size(), 16u) << "the next share what is new";
}

TEST_F(GroupTest, PlansWithoutANameTeachNothing) {
  Use(std::make_unique<NamesLate>(&learned_));
  EXPECT_THAT(LearnedAfterEach({500, 70, 20}), ElementsAre(0, 0, 1));
  EXPECT_FLOAT_EQ(learned_[0].actual_us, 20);
}

TEST_F(GroupTest, WhatAFailedPlanOvertookTeachesNothing) {
  const QueueId a = AddQueue(1), b = AddQueue(2);
  SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  const OpId failed = SubmitGemm(b, 0x1000, 0x2000, 0x4000);
  Step();
  scheduler_.LaunchFailed(failed, {CONCERT_ABI_INTERNAL, CONCERT_MESSAGE_DEVICE_ERROR, {}});
  for (const QueueId queue : {b, a}) {
    now_ += 10'000;
    Finish(queue, 1);
    Step();
  }
  EXPECT_THAT(learned_, IsEmpty());
}

TEST_F(GroupTest, DoesNotLearnFromAPlanBesideOneOfAnotherClass) {
  const QueueId a = AddQueue(1), low = AddQueue(2, Priority::kLow);
  SubmitGemm(low, 0x1000, 0x2000, 0x4000);
  Step();
  SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  now_ += 10'000;
  Finish(low, 1);  // the older one ends first, but the other has run beside it
  Step();
  now_ += 10'000;
  Finish(a, 1);
  Step();
  EXPECT_THAT(learned_, IsEmpty());
}

TEST_F(GroupTest, DoesNotLearnFromWhatFailedOrRanBesideOthers) {
  const QueueId a = AddQueue(1), b = AddQueue(2);
  const OpId failed = SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  scheduler_.LaunchFailed(failed, {CONCERT_ABI_INTERNAL, CONCERT_MESSAGE_DEVICE_ERROR, {}});
  now_ += 20'000;
  Finish(a, 1);
  Step();
  EXPECT_THAT(learned_, IsEmpty());
  // A collective beside it.
  SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  std::unique_ptr<policies::Policy> alone = std::make_unique<EachAlone>();
  scheduler_.SetPolicy(alone);
  const OpId part = Submit(b, {}, RunsOn::kLinks);
  Step();
  scheduler_.SetPolicy(alone);
  scheduler_.PartLaunched(part, {}, now_);
  now_ += 20'000;
  Finish(a, 2);
  Step();
  EXPECT_THAT(learned_, IsEmpty());
}

class LongLaunchTest : public GroupTest {
 protected:
  LongLaunchTest() : GroupTest({.depth = 1, .backlog_ns = 16'000}) {
    std::unique_ptr<policies::Policy> policy = std::make_unique<OneGroup>(&learned_, 400);
    scheduler_.SetPolicy(policy);
  }
};

TEST_F(LongLaunchTest, IsFollowedInTimeEvenIfItEndsASixthEarly) {
  const QueueId a = AddQueue(1), b = AddQueue(2), c = AddQueue(3);
  SubmitGemm(a, 0x1000, 0x2000, 0x3000), SubmitGemm(b, 0x1000, 0x2000, 0x4000);
  Step();
  ASSERT_EQ(launched_.size(), 2u);
  now_ += 100'000;
  SubmitGemm(c, 0x1000, 0x2000, 0x5000);  // less than what is in flight: more may come
  Step();
  EXPECT_EQ(launched_.size(), 2u);
  now_ += 234'000;  // it was predicted to end 66 us later
  Step();
  EXPECT_EQ(launched_.size(), 3u);
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

TEST_F(GroupTest, APairOfBlocksCountsAsTwoSms) {
  kernels::GroupWorkList work_list;
  work_list.blocks = 30;
  work_list.kind = kernels::GroupBlocks::kPairs;
  UseGroups(&learned_, &work_list);
  const QueueId a = AddQueue(1);
  SubmitGemm(a, 0x1000, 0x2000, 0x3000);
  Step();
  Finish(a, 1);
  EXPECT_EQ(scheduler_.plan_records().at(0).sm_count, 60);
  UseGroups(&learned_);  // the test's list outlives the policy
}

// The second launch starts beside the end of the first.
TEST_F(GroupTest, LaunchesThatOverlapShareTheTimeOfTheirLane) {
  const QueueId a = AddQueue(1), b = AddQueue(2), c = AddQueue(3), d = AddQueue(4);
  SubmitGemm(a, 0x1000, 0x2000, 0x3000), SubmitGemm(b, 0x1000, 0x2000, 0x4000);
  Step();
  SubmitGemm(c, 0x1000, 0x2000, 0x5000), SubmitGemm(d, 0x1000, 0x2000, 0x6000);
  Step();
  for (const QueueId queue : {a, c, b, d}) {
    now_ += 10'000;
    Finish(queue, 1);
  }
  float shared_us = 0;
  for (const OpRecord& op : scheduler_.op_records()) shared_us += op.gpu_us;
  EXPECT_FLOAT_EQ(shared_us, 40);
  const std::vector<PlanRecord>& plans = scheduler_.plan_records();
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[0].finished_at - plans[0].started_at, 20'000);
  EXPECT_EQ(plans[1].finished_at - plans[1].started_at, 20'000);
}

}  // namespace
}  // namespace concert::daemon
