#include "daemon/sched/coordinator.h"

#include <gtest/gtest.h>

#include <vector>

#include "policies/cost/cost_model.h"
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
  const Coordinator coordinator({fast, slow, fast});
  const Op op = AllReduce(100 << 20);
  const auto run_ns = [&](std::vector<int> gpus) {
    std::vector<RankPart> parts;
    for (const int gpu : gpus) parts.push_back({.gpu = gpu, .op = &op});
    const CollectivePlan plan = coordinator.Decide(parts);
    EXPECT_EQ(plan.reservation.sms, 8);
    return plan.reservation.run_ns;
  };
  EXPECT_EQ(run_ns({0, 2}), static_cast<Time>(policies::SoloUs(fast, op.work) * 1e3));
  EXPECT_EQ(run_ns({0, 1}), static_cast<Time>(policies::SoloUs(slow, op.work) * 1e3));
}

TEST(CoordinatorTest, NothingIsReservedForABarrierOrWithoutASetting) {
  const Op barrier = AllReduce(0), op = AllReduce(1 << 20);
  const RankPart meet[] = {{.op = &barrier}}, reduce[] = {{.op = &op}};
  const policies::DeviceModel capped{.collective_sms = 8}, uncapped;
  EXPECT_EQ(Coordinator(std::vector{capped}).Decide(meet).reservation.sms, 0);
  EXPECT_EQ(Coordinator(std::vector{uncapped}).Decide(reduce).reservation.sms, 0);
  EXPECT_GT(Coordinator(std::vector{uncapped}).Decide(reduce).reservation.run_ns, 0);
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
  EXPECT_EQ(SeenByNextOp(), 24);
  Finish(first, 1);
  EXPECT_EQ(SeenByNextOp(), 16);
  Finish(second, 1);
  EXPECT_EQ(SeenByNextOp(), 0);
}

}  // namespace
}  // namespace concert::daemon
