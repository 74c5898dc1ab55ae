// What of a GPU is taken by what runs on it.
#ifndef CONCERT_POLICIES_COST_RESOURCES_H_
#define CONCERT_POLICIES_COST_RESOURCES_H_

#include "policies/cost/cost_memo.h"
#include "policies/cost/cost_model.h"
#include "policies/seam/snapshot.h"

namespace concert::policies {

// Shares of the whole: 1 is all, more than there is is wanted by several.
struct Resources {
  double sms = 0;
  double hbm = 0;  // of its bandwidth

  // Whether an op of this cost would get all it wants, and take nothing that others want.
  bool HaveRoomFor(const OpCost& cost) const {
    return sms + cost.sm_share <= 1 && hbm + cost.hbm_share <= 1;
  }
};

// By GEMMs and row ops, and by collectives and copies, which hold SMs and draw on the memory beside
// their links and copy engines. Of a lane, whose work runs in order, the launch that ends first.
Resources ResourcesInUse(const Snapshot& snapshot, CostMemo& memo);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_COST_RESOURCES_H_
