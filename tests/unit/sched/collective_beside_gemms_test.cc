// Chains of GEMMs beside a collective on two simulated GPUs, in virtual time and without numbers:
// what the coordinator decides reaches the launches of both.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "daemon/device/sim/sim_node.h"
#include "daemon/sched/coordinator.h"
#include "daemon/sched/scheduler.h"
#include "kernels/group/plan/compiler.h"

namespace concert::daemon {
namespace {

constexpr int kGpus = 2;
constexpr int kGemms = 24;  // of a chain, each of which fills the GPU
constexpr uint32_t kExtent = 4096;
constexpr double kGemmUs = 220;  // of one, and until the next begins
// On the SMs that the collective leaves: a fifth round of tiles, beside blocks that fill the links.
constexpr double kGemmBesideUs = kGemmUs * 5 / 4 / 0.8;
constexpr int kReservedSms = 16;
constexpr uint64_t kReduceBytes = uint64_t{256} << 20;

Op Gemm() {
  constexpr uint64_t kBytes = uint64_t{2} * kExtent * kExtent;
  Op op;
  op.kind = CONCERT_OP_GEMM;
  op.work = {.carrier = policies::Carrier::kGroup,
             .m = kExtent,
             .n = kExtent,
             .k = kExtent,
             .batch = 1,
             .flops = uint64_t{2} * kExtent * kExtent * kExtent,
             .hbm_bytes = 3 * kBytes};
  op.gemm = {.m = kExtent,
             .n = kExtent,
             .k = kExtent,
             .batch = 1,
             .a = uint64_t{1} << 30,
             .w = uint64_t{2} << 30,
             .d = uint64_t{3} << 30,
             .lda = kExtent,
             .ldw = kExtent,
             .ldd = kExtent,
             .alpha = 1,
             .dtype = policies::Dtype::kBf16};
  return op;
}

Op AllReduce() {
  Op op;
  op.kind = CONCERT_OP_ALL_REDUCE;
  op.work = {.runs_on = policies::RunsOn::kLinks,
             .ranks = kGpus,
             .hbm_bytes = 2 * kReduceBytes,
             .link_bytes = kReduceBytes};
  op.collective = {.count = kReduceBytes / 2,
                   .src = uint64_t{5} << 30,
                   .dst = uint64_t{6} << 30,
                   .src_bytes = kReduceBytes,
                   .dst_bytes = kReduceBytes,
                   .dtype = policies::Dtype::kBf16};
  return op;
}

// One GPU's scheduler, and its device as a dispatcher would use it.
class GpuUnderTest {
 public:
  GpuUnderTest(std::string_view policy, Device& device, int gpu)
      : device_(device),
        gpu_(gpu),
        scheduler_({}, device.info().model,
                   policies::FindPolicy(policy)->make(
                       {device.info().model, nullptr, kernels::MakeGroupCompiler})) {}

  QueueId AddQueue() {
    words_.push_back(0);
    tickets_.push_back(0);
    return scheduler_.AddQueue(/*session=*/1 + static_cast<uint32_t>(words_.size()),
                               policies::Priority::kNormal);
  }
  void Submit(QueueId queue, const Op& op) {
    const OpId id = scheduler_.AllocateOp();
    OpSlot& slot = scheduler_.slot(id);
    slot.op = op;
    slot.op.ticket = ++tickets_[queue];
    scheduler_.Submit(id, queue, now_);
  }

  // Steps until nothing changes, and carries out what it is told; a part is put aside.
  void Step(Time now) {
    now_ = now;
    for (QueueId queue = 0; queue < words_.size(); ++queue) {
      scheduler_.TimelineSeen(queue, words_[queue], now);
    }
    do {
      actions_.Clear();
      scheduler_.Step(now, actions_);
      for (LaunchRequest& launch : actions_.launches) CarryOut(launch);
      for (const OpId id : actions_.released) scheduler_.FreeOp(id);
    } while (!actions_.empty());
  }

  const RankPart* part() const { return part_.op != nullptr ? &part_ : nullptr; }
  void PartLaunched(const Reservation& reservation, Time now) {
    scheduler_.PartLaunched(part_.id, reservation, now);
    part_.op = nullptr;
  }
  bool idle() const { return scheduler_.idle(); }
  bool reached(QueueId queue) const { return tickets_[queue] > 0 && words_[queue] > 0; }

  struct Launched {
    double at_us;
    int sm_budget;
  };
  const std::vector<Launched>& launches() const { return launches_; }

 private:
  TimelineWrite WriteOf(OpId id) {
    const OpSlot& slot = scheduler_.slot(id);
    return {reinterpret_cast<Address>(&words_[slot.queue]), slot.op.ticket};
  }

  void CarryOut(LaunchRequest& launch) {
    const std::span<const OpId> ids = actions_.OpsOf(launch);
    const Lane on = launch.planned.lane;
    for (uint32_t lane = 0; lane < policies::kLaneCount; ++lane) {
      if ((launch.order_mask >> lane & 1) == 0) continue;
      ASSERT_TRUE(device_.Order(on, static_cast<Lane>(lane)).ok());
    }
    if (policies::IsCollectiveLane(on)) {
      part_ = {.gpu = gpu_,
               .lane = on,
               .op = &scheduler_.slot(ids[0]).op,
               .id = ids[0],
               .signal = WriteOf(ids[0])};
      return;
    }
    std::vector<const Op*> ops;
    std::vector<TimelineWrite> writes;
    for (const OpId id : ids) {
      ops.push_back(&scheduler_.slot(id).op);
      writes.push_back(WriteOf(id));
    }
    launch.ops = ops;
    launch.writes = writes;
    launch.after = actions_.AfterOf(launch);
    ASSERT_TRUE(device_.Launch(launch).ok());
    launches_.push_back({static_cast<double>(now_) * 1e-3, launch.planned.sm_budget});
  }

  Device& device_;
  const int gpu_;
  Scheduler scheduler_;
  Actions actions_;
  std::deque<uint64_t> words_;  // timelines, by queue
  std::vector<uint64_t> tickets_;
  RankPart part_;
  Time now_ = 0;
  std::vector<Launched> launches_;
};

struct Outcome {
  double end_us = 0;
  double reduce_begin_us = 0, reduce_end_us = 0;
  std::vector<GpuUnderTest::Launched> launches;  // of the first GPU's GEMMs
};

struct Load {
  std::array<bool, kGpus> gemms = {true, true};
  bool reduce = true;
  Time last_part_at = 0;  // the last GPU's
};

// GPUs have a chain of GEMMs and, beside it, their parts of one all-reduce.
Outcome RunBoth(std::string_view policy, int collective_sms, const Load& load = {}) {
  sim::SimOptions options{.gpus = kGpus, .pace = sim::Pace::kVirtual, .compute = false};
  options.model.collective_sms = collective_sms;
  const std::unique_ptr<sim::SimNode> node = *sim::SimNode::Open(options);
  const auto now_us = [&] { return static_cast<double>(node->Now()) * 1e-3; };
  Coordinator coordinator(std::vector(kGpus, options.model));
  std::deque<GpuUnderTest> gpus;
  QueueId links = 0;
  for (int i = 0; i < kGpus; ++i) {
    GpuUnderTest& gpu = gpus.emplace_back(policy, node->gpu(i), i);
    links = gpu.AddQueue();
    const QueueId chain = gpu.AddQueue();
    if (load.reduce && i + 1 < kGpus) gpu.Submit(links, AllReduce());
    for (int op = 0; load.gemms[static_cast<size_t>(i)] && op < kGemms; ++op) {
      gpu.Submit(chain, Gemm());
    }
  }
  Outcome outcome;
  bool part_missing = load.reduce;
  while (true) {
    if (part_missing && node->Now() >= load.last_part_at) {
      gpus.back().Submit(links, AllReduce());
      part_missing = false;
    }
    for (GpuUnderTest& gpu : gpus) gpu.Step(node->Now());
    if (outcome.reduce_end_us == 0 && gpus[0].reached(links)) outcome.reduce_end_us = now_us();
    if (gpus[0].part() != nullptr && gpus[1].part() != nullptr) {
      const RankPart parts[] = {*gpus[0].part(), *gpus[1].part()};
      const CollectivePlan plan = coordinator.Decide(parts);
      EXPECT_TRUE(node->LaunchCollective(parts, plan.choice).ok());
      for (GpuUnderTest& gpu : gpus) gpu.PartLaunched(plan.reservation, node->Now());
      outcome.reduce_begin_us = now_us();
      continue;
    }
    const Time next = std::min(node->NextEvent(), part_missing ? load.last_part_at : sim::kNever);
    if (next == sim::kNever) break;
    node->AdvanceTo(next);
  }
  for (const GpuUnderTest& gpu : gpus) EXPECT_TRUE(gpu.idle());
  outcome.end_us = now_us();
  outcome.launches = gpus[0].launches();
  return outcome;
}

// Beside library kernels less of it: the blocks that it keeps from their SMs come a round later.
TEST(CollectiveBesideGemmsTest, MostOfItIsHidden) {
  for (const std::string_view policy : {"priority", "static_split", "auto"}) {
    const double gemms_us = RunBoth(policy, kReservedSms, {.reduce = false}).end_us;
    const double reduce_us = RunBoth(policy, kReservedSms, {.gemms = {}}).end_us;
    const double together_us = RunBoth(policy, kReservedSms).end_us;
    EXPECT_LT(together_us, gemms_us + (policy == "priority" ? 0.6 : 0.5) * reduce_us)
        << policy << " " << gemms_us << " and " << reduce_us;
  }
}

TEST(CollectiveBesideGemmsTest, BudgetsShrinkWhileItRunsAndNoLonger) {
  const int sm_count = policies::DeviceModel().sm_count;
  for (const std::string_view policy : {"priority", "static_split", "auto"}) {
    const Outcome outcome = RunBoth(policy, kReservedSms);
    const bool leaves_room = policy != "priority";
    int beside = 0, alone = 0;
    for (const GpuUnderTest::Launched& launch : outcome.launches) {
      // `auto` makes room when it offers the part, the others when all parts are there.
      const bool runs = launch.at_us >= outcome.reduce_begin_us &&
                        launch.at_us < outcome.reduce_end_us &&
                        (launch.at_us > 0 || policy == "auto");
      // One that outlasts the all-reduce has all SMs, some of them late.
      if (policy == "auto" && runs && launch.at_us + kGemmBesideUs > outcome.reduce_end_us)
        continue;
      ++(runs ? beside : alone);
      EXPECT_EQ(launch.sm_budget, runs && leaves_room ? sm_count - kReservedSms : 0)
          << policy << " at " << launch.at_us << " us of " << outcome.reduce_begin_us << " to "
          << outcome.reduce_end_us;
    }
    EXPECT_GT(beside, 1) << policy;
    EXPECT_GT(alone, 10) << policy;
  }
}

// The late GPU has no GEMMs, so that the all-reduce waits for those of the first, if at all.
Load LateBy(Time ns) { return {.gemms = {true, false}, .last_part_at = ns}; }

TEST(CollectiveBesideGemmsTest, ALateRankFindsSmsFree) {
  const auto longest_us = [](std::string_view policy, bool gemms) {
    double longest_us = 0;
    for (Time late = 400'000; late < 600'000; late += 20'000) {
      Load load = LateBy(late);
      load.gemms[0] = gemms;
      const Outcome outcome = RunBoth(policy, kReservedSms, load);
      longest_us = std::max(longest_us, outcome.reduce_end_us - outcome.reduce_begin_us);
    }
    return longest_us;
  };
  const double alone_us = longest_us("auto", false);
  EXPECT_LT(longest_us("auto", true), alone_us + 5);
  EXPECT_GT(longest_us("static_split", true), alone_us + 15) << "it finds the GPU full";
}

TEST(CollectiveBesideGemmsTest, SmsAreNotKeptForALateRankForEver) {
  const Outcome outcome = RunBoth("auto", kReservedSms, LateBy(3'000'000));
  int kept = 0, alone = 0;
  for (const GpuUnderTest::Launched& launch : outcome.launches) {
    const bool waits = launch.at_us < 1'000;
    const bool runs =
        launch.at_us >= outcome.reduce_begin_us && launch.at_us < outcome.reduce_end_us;
    kept += waits;
    alone += !waits && !runs;
    if (runs) continue;  // one that outlasts the all-reduce has all SMs, some of them late
    EXPECT_EQ(launch.sm_budget > 0, waits) << launch.at_us << " us";
  }
  EXPECT_GT(kept, 2);
  EXPECT_GT(alone, 5);
}

// Keeps how many SMs it is told that a collective is likely to hold.
class SeesSms : public policies::Policy {
 public:
  explicit SeesSms(int& sms) : sms_(sms) {}
  void Decide(const policies::Snapshot& snapshot, policies::Plan& plan) override {
    sms_ = snapshot.ready[0].sms;
    plan.Clear();
  }

 private:
  int& sms_;
};

// Where our kernels are measured to be slow, NCCL carries it, for which nothing is kept.
TEST(CollectiveBesideGemmsTest, MeasuredCurvesDecideWhatIsKeptForIt) {
  const policies::DeviceModel model{.transports = policies::TransportSet::All()};
  policies::TransportCurves slow = policies::CurvesOf(nullptr);
  slow.Of(policies::Transport::kPeer, kGpus).bytes_per_s_per_sm = 1e9;
  slow.Of(policies::Transport::kHybrid, kGpus).bytes_per_s_per_sm = 1e9;
  Op reduce = AllReduce();
  reduce.work.transports = policies::TransportSet()
                               .Add(policies::Transport::kNccl)
                               .Add(policies::Transport::kPeer)
                               .Add(policies::Transport::kHybrid);
  int sms = -1;
  Scheduler scheduler({}, model, std::make_unique<SeesSms>(sms));
  const QueueId queue = scheduler.AddQueue(1, policies::Priority::kNormal);
  const OpId id = scheduler.AllocateOp();
  scheduler.slot(id).op = reduce;
  scheduler.slot(id).op.ticket = 1;
  scheduler.Submit(id, queue, 0);
  Actions actions;
  scheduler.Step(0, actions);
  EXPECT_GT(sms, 0);
  const std::vector<policies::TunedRow> no_rows;
  scheduler.UseTuned(std::make_shared<const policies::TunedTable>(no_rows, slow));
  scheduler.Step(1, actions);
  EXPECT_EQ(sms, 0);
  scheduler.UseTuned(nullptr);
  scheduler.Step(2, actions);
  EXPECT_GT(sms, 0) << "the constants again";
}

TEST(CollectiveBesideGemmsTest, WithoutASettingNothingIsLeftToIt) {
  for (const std::string_view policy : {"static_split", "auto"}) {
    for (const GpuUnderTest::Launched& launch : RunBoth(policy, /*collective_sms=*/0).launches)
      EXPECT_EQ(launch.sm_budget, 0) << policy << " at " << launch.at_us << " us";
  }
}

}  // namespace
}  // namespace concert::daemon
