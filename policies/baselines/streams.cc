#include "policies/baselines/streams.h"

#include "policies/cost/cost_memo.h"
#include "policies/cost/plan_writer.h"
#include "policies/seam/lane_book.h"

namespace concert::policies {
namespace {

class StreamsPolicy final : public Policy {
 public:
  explicit StreamsPolicy(const DeviceModel& device) : memo_(device) {}

  void Decide(const Snapshot& snapshot, Plan& plan) override {
    PlanWriter writer(snapshot, memo_, plan);
    if (snapshot.ready.empty()) return;
    LaneBook lanes(snapshot);
    for (size_t i = 0; i < snapshot.ready.size() && !writer.full(); ++i) {
      const int index = static_cast<int>(i);
      const ReadyOp& op = snapshot.ready[i];
      const OpCost& cost = writer.CostOfReady(index);
      const Lane lane =
          op.work.runs_on == RunsOn::kLinks ? kCollectiveLane : lanes.Take(op, false, cost.solo_us);
      writer.Add(index, Form::kStreams, lane, cost);
    }
    writer.Finish(snapshot.ready.size() == 1 ? Reason::kOnlyOneReady : Reason::kPolicyOrder, true);
  }

 private:
  CostMemo memo_;
};

}  // namespace

std::unique_ptr<Policy> MakeStreams(const PolicyInputs& inputs) {
  return std::make_unique<StreamsPolicy>(inputs.device);
}

}  // namespace concert::policies
