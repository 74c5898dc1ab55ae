#include "daemon/sched/coordinator.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "policies/cost/collective_cost.h"
#include "tests/unit/sched/scheduler_fixture.h"

namespace concert::daemon {
namespace {

Op AllReduce(uint64_t bytes) {
  Op op;
  op.kind = CONCERT_OP_ALL_REDUCE;
  op.work = {.runs_on = RunsOn::kLinks, .ranks = 2, .hbm_bytes = 2 * bytes, .link_bytes = bytes};
  return op;
}

TEST(CoordinatorTest, ReservesForAsLongAsTheSlowestGpuTakes) {
  policies::DeviceModel fast{.collective_sms = 8}, slow = fast;
  slow.link_bytes_per_s /= 2;
  Coordinator coordinator({fast, slow, fast});
  const Op op = AllReduce(100 << 20);
  const auto run_ns = [&](std::vector<int> gpus) {
    std::vector<RankPart> parts;
    for (const int gpu : gpus) parts.push_back({.gpu = gpu, .op = &op});
    const CollectivePlan plan = coordinator.Decide(parts);
    EXPECT_EQ(plan.reservation.sms, 8);
    return plan.reservation.run_ns;
  };
  const policies::TransportChoice nccl = {.transport = policies::Transport::kNccl, .sms = 8};
  EXPECT_EQ(run_ns({0, 2}), static_cast<Time>(policies::TransportUs(fast, op.work, 0, nccl) * 1e3));
  EXPECT_EQ(run_ns({0, 1}), static_cast<Time>(policies::TransportUs(slow, op.work, 0, nccl) * 1e3));
}

TEST(CoordinatorTest, NothingIsReservedForABarrierOrWithoutASetting) {
  const Op barrier = AllReduce(0), op = AllReduce(1 << 20);
  const RankPart meet[] = {{.op = &barrier}}, reduce[] = {{.op = &op}};
  const policies::DeviceModel capped{.collective_sms = 8}, uncapped;
  EXPECT_EQ(Coordinator(std::vector{capped}).Decide(meet).reservation.sms, 0);
  EXPECT_EQ(Coordinator(std::vector{uncapped}).Decide(reduce).reservation.sms, 0);
  EXPECT_GT(Coordinator(std::vector{uncapped}).Decide(reduce).reservation.run_ns, 0);
}

// By copy engines, which are slower here and hold no SMs, if GEMMs outlast it that want them all.
TEST(CoordinatorTest, LeavesTheSmsToGemmsThatOutlastIt) {
  policies::DeviceModel model{.transports = policies::TransportSet::All()};
  policies::TransportCurves& curves = model.transport_curves;
  curves.Of(policies::Transport::kCopyEngine, 2).link_share = policies::AllKinds(0.5);
  Coordinator coordinator({model, model});
  Op op = AllReduce(100 << 20);
  op.kind = CONCERT_OP_ALL_GATHER;
  op.work.transports = policies::TransportSet()
                           .Add(policies::Transport::kNccl)
                           .Add(policies::Transport::kPeer)
                           .Add(policies::Transport::kCopyEngine);
  op.collective.count = 50 << 20;
  op.collective.dtype = policies::Dtype::kBf16;
  const auto transport = [&](policies::Beside on_one, policies::Beside on_other) {
    const RankPart parts[] = {{.gpu = 0, .op = &op, .beside = on_one},
                              {.gpu = 1, .op = &op, .beside = on_other}};
    return coordinator.Decide(parts).choice.transport;
  };
  using policies::Transport;
  EXPECT_EQ(transport({}, {}), Transport::kPeer);
  EXPECT_EQ(transport({.us = 20}, {}), Transport::kPeer);
  EXPECT_EQ(transport({.us = 5000}, {}), Transport::kCopyEngine);
  EXPECT_EQ(transport({}, {.us = 5000}), Transport::kCopyEngine);
}

// What the root of a broadcast copies to itself takes SMs, too; admission cannot know who that is.
TEST(CoordinatorTest, ReservesSmsForWhatTheRootOfABroadcastCopiesToItself) {
  const policies::DeviceModel model{
      .transports = policies::TransportSet().Add(policies::Transport::kCopyEngine)};
  Coordinator coordinator({model, model});
  std::array<Op, 2> ops = {AllReduce(100 << 20), AllReduce(100 << 20)};
  std::array<RankPart, 2> parts;
  for (int rank = 0; rank < 2; ++rank) {
    Op& op = ops[rank];
    op.kind = CONCERT_OP_BROADCAST;
    op.work.transports = model.transports;
    op.collective = {};
    op.collective.count = 50 << 20;
    op.collective.dtype = policies::Dtype::kBf16;
    op.collective.root = 1;
    op.collective.src = op.collective.dst = 1 << 30;
    parts[rank] = {.gpu = rank, .op = &op};
  }
  ops[0].collective.dst = uint64_t{2} << 30;  // whose src is not read
  EXPECT_EQ(coordinator.Decide(parts).reservation.sms, 0);
  ops[1].collective.dst = uint64_t{2} << 30;
  EXPECT_GT(coordinator.Decide(parts).reservation.sms, 0);
}

TEST(CoordinatorTest, TakesATransportThatAllPartsAndGpusHave) {
  const policies::DeviceModel model{.transports = policies::TransportSet::All()};
  Coordinator coordinator({model, model, policies::DeviceModel()});
  Op every = AllReduce(100 << 20), only_nccl = every;
  every.work.transports = policies::TransportSet::All();
  const auto transport = [&](std::vector<RankPart> parts) {
    const CollectivePlan plan = coordinator.Decide(parts);
    EXPECT_EQ(plan.reservation.sms, plan.choice.sms);
    return plan.choice.transport;
  };
  using policies::Transport;
  EXPECT_NE(transport({{.gpu = 0, .op = &every}, {.gpu = 1, .op = &every}}), Transport::kNccl);
  EXPECT_EQ(transport({{.gpu = 0, .op = &every}, {.gpu = 1, .op = &only_nccl}}), Transport::kNccl);
  EXPECT_EQ(transport({{.gpu = 0, .op = &every}, {.gpu = 2, .op = &every}}), Transport::kNccl);
  EXPECT_EQ(transport({{.gpu = 1, .op = &every}, {.gpu = 1, .op = &every}}), Transport::kNccl)
      << "ranks that share a GPU have a kernel of their own";
}

TEST(CoordinatorTest, ChoosesByTheCurvesThatItIsGiven) {
  using policies::Transport;
  const policies::DeviceModel model{.transports = policies::TransportSet::All()};
  Coordinator coordinator({model, model});
  Op every = AllReduce(100 << 20);
  every.work.transports = policies::TransportSet::All();
  const RankPart parts[] = {{.gpu = 0, .op = &every}, {.gpu = 1, .op = &every}};
  ASSERT_NE(coordinator.Decide(parts).choice.transport, Transport::kNccl);
  policies::TransportCurves slow = policies::CurvesOf(nullptr);
  for (policies::TransportCurve& curve : slow.of_two) curve.floor_us = 1e5;
  slow.Of(Transport::kNccl, 2).floor_us = 5e4;
  for (const int gpu : {0, 1}) coordinator.UseCurves(gpu, slow);
  const CollectivePlan plan = coordinator.Decide(parts);
  EXPECT_EQ(plan.choice.transport, Transport::kNccl);
  EXPECT_GT(plan.reservation.run_ns, 50'000'000);
}

TEST(CoordinatorTest, TakesTheOneTransportThatItIsToldWhereThatCanBe) {
  const policies::DeviceModel model{.transports = policies::TransportSet::All()};
  Op every = AllReduce(100 << 20), some = every;
  every.work.transports = policies::TransportSet::All();
  some.work.transports.Add(policies::Transport::kNccl);
  for (int i = 0; i < policies::kTransportCount; ++i) {
    const auto only = static_cast<policies::Transport>(i);
    Coordinator coordinator({model, model}, only);
    const RankPart parts[] = {{.gpu = 0, .op = &every}, {.gpu = 1, .op = &every}};
    EXPECT_EQ(coordinator.Decide(parts).choice.transport, only);
    const RankPart others[] = {{.gpu = 0, .op = &some}, {.gpu = 1, .op = &some}};
    EXPECT_EQ(coordinator.Decide(others).choice.transport, policies::Transport::kNccl);
  }
}

// Writes down what it is asked to leave free.
class Reserved : public EachAlone {
 public:
  explicit Reserved(std::vector<int>& seen) : seen_(seen) {}
  void Decide(const Snapshot& snapshot, Plan& plan) override {
    seen_.push_back(snapshot.reserved_sms);
    EachAlone::Decide(snapshot, plan);
  }

 private:
  std::vector<int>& seen_;
};

class ReservationTest : public SchedulerTest {
 protected:
  int SeenByNextOp() {
    seen_.clear();
    Submit(gemms_);
    Step();
    Finish(gemms_, tickets_[gemms_]);
    EXPECT_EQ(seen_.size(), 1u);
    return seen_.empty() ? -1 : seen_[0];
  }

  std::vector<int> seen_;
  QueueId gemms_ = 0;
};

TEST_F(ReservationTest, APolicySeesItFromTheLaunchOfACollectiveToItsEnd) {
  std::unique_ptr<policies::Policy> policy = std::make_unique<Reserved>(seen_);
  scheduler_.SetPolicy(policy);
  gemms_ = AddQueue();
  const QueueId first = AddQueue(), second = AddQueue();
  EXPECT_EQ(SeenByNextOp(), 0);
  const OpId one = Submit(first, {}, RunsOn::kLinks), other = Submit(second, {}, RunsOn::kLinks);
  Step();
  EXPECT_EQ(SeenByNextOp(), 0);  // offered: it holds nothing yet
  scheduler_.PartLaunched(one, {.sms = 8, .run_ns = 1000}, now_);
  EXPECT_EQ(SeenByNextOp(), 8);
  scheduler_.PartLaunched(other, {.sms = 16, .run_ns = 1000}, now_);
  EXPECT_EQ(SeenByNextOp(), 16) << "one follows the other on their lane";
  Finish(first, 1);
  EXPECT_EQ(SeenByNextOp(), 16);
  Finish(second, 1);
  EXPECT_EQ(SeenByNextOp(), 0);
}

}  // namespace
}  // namespace concert::daemon
