#include "policies/cost/resources.h"

#include <algorithm>
#include <array>
#include <limits>

namespace concert::policies {

Resources ResourcesInUse(const Snapshot& snapshot, CostMemo& memo) {
  // Ops of one launch are predicted to end at the same time.
  std::array<Time, kLaneCount> first_end;
  first_end.fill(std::numeric_limits<Time>::max());
  for (const RunningOp& op : snapshot.running) {
    first_end[op.lane] = std::min(first_end[op.lane], op.expected_end);
  }
  Resources in_use;
  for (const RunningOp& op : snapshot.running) {
    if (op.expected_end > first_end[op.lane]) continue;
    const OpCost& cost = memo.Of(op.work);
    in_use.sms += cost.sm_share;
    in_use.hbm += cost.hbm_share;
  }
  return in_use;
}

}  // namespace concert::policies
