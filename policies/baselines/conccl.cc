#include "policies/baselines/conccl.h"

#include <algorithm>
#include <array>
#include <span>

#include "policies/cost/cost_memo.h"
#include "policies/cost/plan_writer.h"
#include "policies/seam/lane_book.h"

namespace concert::policies {
namespace {

// A GEMM that draws more than this of the memory's bandwidth is bound by it.
constexpr double kMemoryBound = 0.7;

bool IsCollective(const Work& work) { return work.runs_on == RunsOn::kLinks; }
// Whether its place in the order is a matter of its SMs alone: not that of a program, whose steps
// may want few.
bool Weighed(const Work& work) { return work.runs_on == RunsOn::kSms && work.steps == 1; }

class ConcclPolicy final : public Policy {
 public:
  explicit ConcclPolicy(const DeviceModel& device) : memo_(device) {}

  void Decide(const Snapshot& snapshot, Plan& plan) override {
    PlanWriter writer(snapshot, memo_, plan);
    if (snapshot.ready.empty()) return;
    const std::span<const Place> order = Order(snapshot, writer);
    const bool beside =
        std::any_of(snapshot.running.begin(), snapshot.running.end(),
                    [](const RunningOp& running) { return IsCollective(running.work); });
    LaneBook lanes(snapshot);
    bool collective = beside;
    int held = snapshot.reserved_sms;
    for (const Place& place : order) {
      if (writer.full()) break;
      const ReadyOp& op = snapshot.ready[place.index];
      if (!Weighed(op.work) && !writer.HasRoomAhead(op.work)) continue;
      if (IsCollective(op.work)) {
        collective = true;
        held = std::max<int>(held, op.sms);
        writer.Add(place.index, Form::kStreams, kHighCollectiveLane);
        continue;
      }
      const OpCost cost = writer.CostOfReady(place.index);
      const Lane lane = lanes.Take(op, op.priority == Priority::kHigh, cost.solo_us);
      writer.Add(place.index, Form::kStreams, lane, cost);
      if (collective && op.work.is_gemm())
        plan.launches[plan.launch_count - 1].sm_budget = BudgetBeside(held, cost);
    }
    writer.Finish(snapshot.ready.size() == 1 ? Reason::kOnlyOneReady : Reason::kPolicyOrder, true);
  }

 private:
  struct Place {
    Priority priority;
    double sms;  // 0: none, or a collective
    int index;

    bool operator<(const Place& other) const {
      if (priority != other.priority) return priority > other.priority;
      return sms != other.sms ? sms < other.sms : index < other.index;
    }
  };

  std::span<const Place> Order(const Snapshot& snapshot, PlanWriter& writer) {
    const size_t count = std::min(snapshot.ready.size(), order_.size());
    for (size_t i = 0; i < count; ++i) {
      const auto index = static_cast<int>(i);
      const ReadyOp& op = snapshot.ready[i];
      const double sms = op.work.runs_on == RunsOn::kSms ? writer.CostOfReady(index).sm_share : 0;
      order_[i] = {op.priority, sms, index};
    }
    std::sort(order_.begin(), order_.begin() + count);
    return {order_.data(), count};
  }

  // 0: all SMs.
  uint16_t BudgetBeside(int held, const OpCost& cost) const {
    if (held == 0 && cost.hbm_share > kMemoryBound) held = kTrimmedSms;
    return held == 0 ? 0 : static_cast<uint16_t>(std::max(1, memo_.device().sm_count - held));
  }

  CostMemo memo_;
  std::array<Place, kMaxReady> order_;
};

}  // namespace

std::unique_ptr<Policy> MakeConccl(const PolicyInputs& inputs) {
  return std::make_unique<ConcclPolicy>(inputs.device);
}

}  // namespace concert::policies
