#include "policies/baselines/goldyloc.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "policies/baselines/degree_model.h"
#include "policies/cost/cost_memo.h"
#include "policies/cost/memo.h"
#include "policies/cost/plan_writer.h"
#include "policies/models/degree_h200.h"
#include "policies/seam/lane_book.h"

namespace concert::policies {
namespace {

static_assert(kMaxDegree <= kNormalLaneCount, "a co-run set has a lane for each of its GEMMs");

constexpr uint32_t LaneBit(Lane lane) { return lane < kLaneCount ? 1u << lane : 0; }

// Predicted degrees of GEMMs seen before.
class DegreeMemo {
 public:
  explicit DegreeMemo(int sm_count) : sm_count_(sm_count) {}

  // `hash` is HashWork(work). The reference is valid until the next call.
  const DegreesByDepth& Of(const Work& work, uint64_t hash) {
    return degrees_.Of(
        work, hash, [&] { return PredictDegrees(kDegreeModelH200, Problem::Of(work), sm_count_); });
  }

 private:
  int sm_count_;
  Memo<Work, DegreesByDepth, 1024> degrees_;
};

// The ready GEMMs of the highest class, of which the first can go out now, and the lanes for them.
struct Queued {
  Priority priority = Priority::kNormal;
  std::array<int, kMaxDegree> index{};  // into Snapshot::ready
  int count = 0;
  int ready = 0;              // all of the class
  uint32_t predecessors = 0;  // lanes that one of `ready` follows
  uint32_t running = 0;       // lanes for this class on which a GEMM runs
  bool lower_class_waits = false;

  bool high() const { return priority == Priority::kHigh; }
  Lane first_lane() const { return high() ? kFirstHighLane : kFirstNormalLane; }
  int lane_count() const { return high() ? kHighLaneCount : kNormalLaneCount; }

  void Offer(int ready_index, const ReadyOp& op) {
    if (ready == 0) priority = op.priority;
    if (op.priority != priority) {
      lower_class_waits = true;
      return;
    }
    ++ready;
    predecessors |= LaneBit(op.after);
    if (count < std::min<int>(lane_count(), kMaxDegree)) index[count++] = ready_index;
  }

  // GEMMs that could run side by side: the ready ones, and the running ones that none of them
  // follows.
  int depth() const { return ready + std::popcount(running & ~predecessors); }
};

// How many of the first queued GEMMs go out, and how many GEMMs then run side by side.
struct Chosen {
  int count = 1;
  int width = 1;
};

class GoldylocPolicy final : public Policy {
 public:
  explicit GoldylocPolicy(const DeviceModel& device) : costs_(device), degrees_(device.sm_count) {}

  void Decide(const Snapshot& snapshot, Plan& plan) override {
    PlanWriter writer(snapshot, costs_, plan);
    if (snapshot.ready.empty()) return;
    LaneBook lanes(snapshot);
    Queued gemms = AddOthers(snapshot, lanes, writer);
    if (gemms.count == 0) return writer.Finish(OthersReason(snapshot), true);
    for (const RunningOp& running : snapshot.running) {
      if (running.work.is_gemm() && running.lane >= gemms.first_lane() &&
          running.lane < gemms.first_lane() + gemms.lane_count()) {
        gemms.running |= LaneBit(running.lane);
      }
    }
    const Chosen chosen = ChooseDegree(snapshot, gemms);
    KeepLanes(snapshot, gemms, chosen.width, lanes);
    const Form form = chosen.width > 1 ? Form::kStreams : Form::kSingle;
    for (int i = 0; i < chosen.count; ++i) {
      const int index = gemms.index[i];
      const OpCost cost = writer.CostOfReady(index);
      writer.Add(index, form, lanes.Take(snapshot.ready[index], gemms.high(), cost.solo_us), cost);
      plan.launches[plan.launch_count - 1].degree = DegreeOf(chosen.width);
    }
    writer.Finish(ReasonOf(chosen, gemms), true);
  }

 private:
  // Collectives go out at once and ahead of GEMMs, behind whose blocks they would wait; copies
  // cost others little. Returns the GEMMs.
  static Queued AddOthers(const Snapshot& snapshot, LaneBook& lanes, PlanWriter& writer) {
    Queued gemms;
    for (size_t i = 0; i < snapshot.ready.size(); ++i) {
      const int index = static_cast<int>(i);
      const ReadyOp& op = snapshot.ready[i];
      if (op.work.is_gemm()) {
        gemms.Offer(index, op);
      } else if (!writer.HasRoomAhead(op.work)) {
        continue;
      } else if (op.work.runs_on == RunsOn::kLinks) {
        writer.Add(index, Form::kStreams, kHighCollectiveLane);
      } else {
        const bool high = op.priority == Priority::kHigh;
        writer.Add(index, Form::kStreams, lanes.Take(op, high, writer.CostOfReady(index).solo_us));
      }
    }
    return gemms;
  }

  static Reason OthersReason(const Snapshot& snapshot) {
    const bool collective =
        std::any_of(snapshot.ready.begin(), snapshot.ready.end(),
                    [](const ReadyOp& op) { return op.work.runs_on == RunsOn::kLinks; });
    if (collective) return Reason::kCollective;
    return snapshot.ready.size() == 1 ? Reason::kOnlyOneReady : Reason::kPolicyOrder;
  }

  // Each GEMM's degree is an upper limit to the set it is in, so a plan takes GEMMs in their
  // order for as long as all of them accept one more. What runs is not asked again: one large GEMM
  // would hold back the small ones behind it.
  Chosen ChooseDegree(const Snapshot& snapshot, const Queued& gemms) {
    const int depth = std::min(gemms.depth(), kMaxDegree);
    int limit = kMaxDegree;
    uint32_t followed = 0;
    Chosen chosen{.count = 0};
    for (int i = 0; i < gemms.count; ++i) {
      const ReadyOp& op = snapshot.ready[gemms.index[i]];
      const int own_limit = degrees_.Of(op.work, HashWork(op.work))[depth - 1];
      if (std::min(limit, own_limit) <= i) break;
      limit = std::min(limit, own_limit);
      followed |= LaneBit(op.after);
      ++chosen.count;
    }
    const int others = std::popcount(gemms.running & ~followed);
    chosen.width = std::min({limit, chosen.count + others, gemms.lane_count()});
    return chosen;
  }

  // Leaves `width` lanes open, so that no more GEMMs than that run side by side. Lanes with a GEMM
  // come first, those that end last before others: where all are busy, the plan starts when most of
  // what runs has ended.
  static void KeepLanes(const Snapshot& snapshot, const Queued& gemms, int width, LaneBook& lanes) {
    std::array<Lane, kNormalLaneCount> order;
    const int count = gemms.lane_count();
    for (int i = 0; i < count; ++i) order[i] = static_cast<Lane>(gemms.first_lane() + i);
    std::sort(order.begin(), order.begin() + count, [&](Lane a, Lane b) {
      const bool a_runs = gemms.running & LaneBit(a), b_runs = gemms.running & LaneBit(b);
      if (a_runs != b_runs) return a_runs;
      const Time a_until = snapshot.lanes[a].busy_until, b_until = snapshot.lanes[b].busy_until;
      if (a_until != b_until) return a_runs ? a_until > b_until : a_until < b_until;
      return a < b;
    });
    for (int i = width; i < count; ++i) lanes.Close(order[i]);
  }

  static Reason ReasonOf(const Chosen& chosen, const Queued& gemms) {
    if (chosen.width > 1) return Reason::kTogetherFaster;
    if (gemms.ready > 1) return Reason::kTogetherNotFaster;
    return gemms.lower_class_waits ? Reason::kPriorityFirst : Reason::kOnlyOneReady;
  }

  CostMemo costs_;
  DegreeMemo degrees_;
};

}  // namespace

std::unique_ptr<Policy> MakeGoldyloc(const PolicyInputs& inputs) {
  return std::make_unique<GoldylocPolicy>(inputs.device);
}

}  // namespace concert::policies
