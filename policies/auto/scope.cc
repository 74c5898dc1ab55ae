#include "policies/auto/scope.h"

namespace concert::policies {

void ChooseScope(const Snapshot& snapshot, const ReadyCompute& ready, const RunningCompute& running,
                 const ClassHistory& history, Scope& scope) {
  const auto held_ns = [&](int priority_class) {
    const ReadyOp& first = snapshot.ready[ready.OfClass(priority_class)[0]];
    return history.HeldNs(priority_class, first.ready_at, snapshot.now);
  };
  int planned = 0;
  while (ready.classes[planned].count == 0) ++planned;
  for (int lower = planned + 1; lower < kClassCount; ++lower) {
    if (ready.classes[lower].count > 0 && held_ns(lower) > kMaxHeldNs) planned = lower;
  }
  const ReadyCompute::Class& its = ready.classes[planned];
  scope.snapshot = &snapshot;
  scope.priority_class = planned;
  scope.held_long = held_ns(planned) > kMaxHeldNs;
  scope.grouped = its.grouped > 0;
  scope.deadline = its.deadline;
  scope.index = ready.OfClass(planned);
  scope.goal = GroupGoal::kLatency;
  scope.followed = false;
  scope.tail_count = 0;
  const bool groups_only =
      scope.grouped && its.grouped < its.count && !scope.held_long && running.HigherRuns(planned);
  if (!groups_only) return;
  int kept = 0;
  for (const uint16_t index : scope.index) {
    if (snapshot.ready[index].work.chains()) scope.kept[kept++] = index;
  }
  scope.index = {scope.kept.data(), static_cast<size_t>(kept)};
}

}  // namespace concert::policies
