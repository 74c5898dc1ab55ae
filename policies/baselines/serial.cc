#include "policies/baselines/serial.h"

#include <algorithm>

#include "policies/cost/cost_memo.h"
#include "policies/cost/plan_writer.h"

namespace concert::policies {
namespace {

// For how long an offered collective counts as running: its last ranks may never come.
constexpr Time kMeetingNs = 1'000'000;

class SerialPolicy final : public Policy {
 public:
  explicit SerialPolicy(const DeviceModel& device) : memo_(device) {}

  // Takes the ops up to the first change between collectives and other work. In between it waits
  // until the GPU is empty, because the two kinds need different lanes, which would run side by
  // side.
  void Decide(const Snapshot& snapshot, Plan& plan) override {
    PlanWriter writer(snapshot, memo_, plan);
    if (snapshot.ready.empty()) return;
    const bool collectives = IsCollective(snapshot.ready[0]);
    const bool other_kind_runs = std::any_of(
        snapshot.running.begin(), snapshot.running.end(),
        [&](const RunningOp& running) { return IsCollectiveLane(running.lane) != collectives; });
    const bool part_waits = std::any_of(
        snapshot.waiting.begin(), snapshot.waiting.end(),
        [&](const WaitingCollective& part) { return snapshot.now - part.since < kMeetingNs; });
    if (other_kind_runs || (part_waits && !collectives)) {
      return writer.Finish(Reason::kHeldBack, false);
    }
    const Lane lane = collectives ? kCollectiveLane : kFirstNormalLane;
    for (size_t i = 0; i < snapshot.ready.size() && !writer.full(); ++i) {
      if (IsCollective(snapshot.ready[i]) != collectives) break;
      writer.Add(static_cast<int>(i), Form::kSingle, lane);
    }
    writer.Finish(snapshot.ready.size() == 1 ? Reason::kOnlyOneReady : Reason::kPolicyOrder, false);
  }

 private:
  static bool IsCollective(const ReadyOp& op) { return op.work.runs_on == RunsOn::kLinks; }

  CostMemo memo_;
};

}  // namespace

std::unique_ptr<Policy> MakeSerial(const PolicyInputs& inputs) {
  return std::make_unique<SerialPolicy>(inputs.device);
}

}  // namespace concert::policies
