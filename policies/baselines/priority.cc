#include "policies/baselines/priority.h"

#include "policies/cost/cost_memo.h"
#include "policies/cost/plan_writer.h"
#include "policies/seam/lane_book.h"

namespace concert::policies {
namespace {

class PriorityPolicy final : public Policy {
 public:
  explicit PriorityPolicy(const DeviceModel& device) : memo_(device) {}

  void Decide(const Snapshot& snapshot, Plan& plan) override {
    PlanWriter writer(snapshot, memo_, plan);
    if (snapshot.ready.empty()) return;
    LaneBook lanes(snapshot);
    for (const Priority priority : {Priority::kHigh, Priority::kNormal, Priority::kLow}) {
      AddClass(snapshot, priority, lanes, writer);
    }
    writer.Finish(snapshot.ready.size() == 1 ? Reason::kOnlyOneReady : Reason::kPolicyOrder, true);
  }

 private:
  // Collectives first: once a GEMM fills the GPU, a collective waits behind all of its blocks.
  static void AddClass(const Snapshot& snapshot, Priority priority, LaneBook& lanes,
                       PlanWriter& writer) {
    for (const bool collectives : {true, false}) {
      for (size_t i = 0; i < snapshot.ready.size() && !writer.full(); ++i) {
        const int index = static_cast<int>(i);
        const ReadyOp& op = snapshot.ready[i];
        const bool is_collective = op.work.runs_on == RunsOn::kLinks;
        if (op.priority != priority || is_collective != collectives) continue;
        const Lane lane = collectives ? kHighCollectiveLane
                                      : lanes.Take(op, priority == Priority::kHigh,
                                                   writer.CostOfReady(index).solo_us);
        writer.Add(index, Form::kStreams, lane);
      }
    }
  }

  CostMemo memo_;
};

}  // namespace

std::unique_ptr<Policy> MakePriority(const PolicyInputs& inputs) {
  return std::make_unique<PriorityPolicy>(inputs.device);
}

}  // namespace concert::policies
