// How many library GEMMs go side by side, beside what runs already: the choice where no group
// launch is possible.
#ifndef CONCERT_POLICIES_AUTO_SIDE_BY_SIDE_H_
#define CONCERT_POLICIES_AUTO_SIDE_BY_SIDE_H_

#include <span>

#include "policies/auto/launch_split.h"
#include "policies/cost/cost_model.h"

namespace concert::policies {

// The last GEMM launched on a lane.
struct Tail {
  OpCost cost;
  int follower = -1;  // which of the candidates would go behind it on that lane
};

struct SideBySideOp {
  OpCost cost;
  bool same_session = false;  // as the op before
};

// The first of `gemms` alone, or the first c of them as streams, for the c that gains most over one
// after the other. Streams must gain counting `tails`, and without them neither lose nor keep a
// session waiting (FairTurns). 1 to kNormalLaneCount GEMMs, each with a lane of its own. `ratios`:
// actual over predicted time of each form.
void ChooseSideBySide(const DeviceModel& device, std::span<const SideBySideOp> gemms,
                      std::span<const Tail> tails, const Ratios& ratios, LaunchSplit& result);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_SIDE_BY_SIDE_H_
