#include "policies/cost/cost_memo.h"

#include <algorithm>

namespace concert::policies {
OpCost CostMemo::Compute(const Work& work) const {
  OpCost cost = CostOf(device_, work, sm_count_);
  if (tuned_ == nullptr || !work.is_gemm()) return cost;
  const TunedRow* row =
      tuned_->Find({.problem = Problem::Of(work), .sm_budget = static_cast<uint16_t>(sm_count_)});
  if (row == nullptr || !(row->median_us > 0)) return cost;
  cost.solo_us = row->median_us;
  cost.busy_us = std::max(cost.hbm_us, cost.solo_us - device_.kernel_floor_us);
  cost.hbm_share = cost.busy_us > 0 ? cost.hbm_us / cost.busy_us : 0;
  cost.tuned = true;
  return cost;
}

}  // namespace concert::policies
