#include "policies/auto/groups.h"

#include <algorithm>
#include <array>

#include "policies/seam/window.h"

namespace concert::policies {
namespace {

// Less work than that is not shared out: what a client takes to come back with more once something
// has ended, and a launch. This and what follows: ADR 13, "What the constants rest on".
constexpr double kLeastShareUs = 40;
// Ready over running work that is shared out: a client that keeps batches submitted would have
// three of them launched and then one, for ever. Always sharing out leaves batches cut in two and
// ever new signatures.
constexpr double kMaxImbalance = 2;

// What a step of a chain gains that starts beside the end of the one before. Of the longest steps
// that predictions of chains were fitted to, that is little.
constexpr float kOverlapUs = 2, kMaxStepUs = 60;

// Whether the next op of its queue could start beside its end.
bool IsFollowed(const Snapshot& snapshot, const ReadyOp& op) {
  if (!op.work.chains()) return false;
  const Followers::Iterator next = FollowersOf(snapshot, op).begin();
  return next != std::default_sentinel && next->work->chains() && !next->waits_elsewhere;
}

}  // namespace

void LookAtLane(Scope& scope) {
  const Snapshot& snapshot = *scope.snapshot;
  const Lane lane = scope.serial_lane = SerialLaneOf(scope.priority_class);
  const bool busy = snapshot.lanes[lane].in_flight > 0;
  const auto any = [&](auto is) {
    return std::any_of(scope.index.begin(), scope.index.end(),
                       [&](uint16_t index) { return is(snapshot.ready[index]); });
  };
  if (busy) {
    const bool chained = any([&](const ReadyOp& op) { return op.after == lane; });
    scope.goal = chained ? GroupGoal::kChain : GroupGoal::kThroughput;
  } else {
    scope.followed = any([&](const ReadyOp& op) { return IsFollowed(snapshot, op); });
  }
}

void TakeHalf(const DeviceModel& device, Scope& scope) {
  double running_us = 0, ready_us = 0;
  for (const RunningOp& op : scope.snapshot->running) {
    if (op.work.runs_on != RunsOn::kSms) continue;
    if (ClassOf(op.priority) == scope.priority_class) running_us += RooflineUs(device, op.work);
  }
  std::array<double, kMaxReady> until_us;  // of all up to this one
  for (int i = 0; i < scope.count(); ++i) {
    until_us[i] = ready_us += RooflineUs(device, scope.op(i).work);
  }
  if (ready_us <= kMaxImbalance * running_us) return;
  const double half_us = std::max(kLeastShareUs, (running_us + ready_us) / 2);
  const auto end =
      std::upper_bound(until_us.begin(), until_us.begin() + scope.count(), half_us * (1 + 1e-9));
  scope.index = scope.index.first(std::max<size_t>(1, end - until_us.begin()));
}

void ChooseFirstStep(Budget budget, SplitChooser& chooser, Scope& scope) {
  const float alone_us = chooser.Choose(scope, budget).all_us;
  if (alone_us > kMaxStepUs) return;
  scope.goal = GroupGoal::kChain;
  const float step_us = chooser.Choose(scope, budget).all_us;
  if (step_us > alone_us + kOverlapUs) scope.goal = GroupGoal::kLatency;
}

}  // namespace concert::policies
