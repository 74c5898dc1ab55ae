#include "policies/auto/side_by_side.h"

#include <algorithm>
#include <array>
#include <span>

#include "policies/auto/urgency.h"

namespace concert::policies {
namespace {

// The last op launched on each lane that runs on SMs.
using LaneTails = std::array<const RunningOp*, Scope::kComputeLanes>;

LaneTails TailsOf(const Snapshot& snapshot) {
  LaneTails tails{};
  for (const RunningOp& running : snapshot.running) {
    if (running.work.runs_on != RunsOn::kSms || running.lane >= tails.size()) continue;
    const RunningOp*& tail = tails[running.lane];
    if (tail == nullptr || running.launched_at >= tail->launched_at) tail = &running;
  }
  return tails;
}

// Ops that would be late one after the other, into `found`. Returns how many there are.
int FindLate(CostMemo& memo, const Scope& scope, std::span<uint16_t> found) {
  std::array<float, kMaxReady> end_us;
  double us = 0;
  for (int i = 0; i < scope.count(); ++i)
    end_us[i] = static_cast<float>(us += memo.Of(scope.op(i).work, scope.work_hash(i)).solo_us);
  return FindUrgent(scope, end_us, memo, UrgentTime(memo.device()), /*may_share=*/false, found);
}

// Where there are more ops than lanes: those that would be late go out first, and the first in turn
// with them in any case.
void KeepForLanes(CostMemo& memo, Scope& scope) {
  const int limit = scope.lane_limit();
  if (scope.count() <= limit) return;
  std::array<uint16_t, kMaxReady> late;
  const int late_count = scope.deadline ? FindLate(memo, scope, late) : 0;
  const std::span<const uint16_t> first(late.data(), std::min(late_count, limit - 1));
  int kept = 0;
  for (const uint16_t i : first) scope.kept[kept++] = scope.index[i];
  for (uint16_t i = 0; kept < limit; ++i) {
    if (std::find(first.begin(), first.end(), i) == first.end())
      scope.kept[kept++] = scope.index[i];
  }
  scope.index = {scope.kept.data(), static_cast<size_t>(kept)};
}

}  // namespace

void LookBeside(CostMemo& memo, LaneBook& lanes, Scope& scope) {
  KeepForLanes(memo, scope);
  std::array<int, kLaneCount> follower;
  follower.fill(-1);
  for (int i = 0; i < scope.count(); ++i) {
    const OpCost& cost = memo.Of(scope.op(i).work, scope.work_hash(i));
    scope.lane[i] = lanes.Take(scope.op(i), scope.high(), cost.solo_us);
    follower[scope.lane[i]] = i;
  }
  const LaneTails tails = TailsOf(*scope.snapshot);
  const RunningOp* last = nullptr;
  for (size_t lane = 0; lane < tails.size(); ++lane) {
    const RunningOp* tail = tails[lane];
    if (tail == nullptr || ClassOf(tail->priority) != scope.priority_class) continue;
    scope.tails[scope.tail_count++] = {
        .work = &tail->work, .cost = memo.Of(tail->work), .follower = follower[lane]};
    if (IsHighPriority(tail->lane) != scope.high()) continue;
    if (last == nullptr || tail->expected_end > last->expected_end) last = tail;
  }
  if (scope.tail_count > 0) scope.goal = GroupGoal::kThroughput;
  scope.serial_lane = last == nullptr ? scope.lane[0] : last->lane;
}

void TakeLanes(const LaunchSplit& split, LaneBook& lanes, Scope& scope) {
  for (int i = 0; i < split.op_count; ++i) {
    const ReadyOp& op = scope.op(split.order[i]);
    scope.lane[i] = lanes.Take(op, scope.high(), split.steps[0].predicted_us);
  }
}

}  // namespace concert::policies
