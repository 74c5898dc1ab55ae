// Group launches: what the scheduler says of their operands, their order and their records.
#include <memory>
#include <vector>

#include "tests/unit/sched/group_fixture.h"

namespace concert::daemon {
namespace {

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
