// Where launches would go.
#ifndef CONCERT_POLICIES_AUTO_SPLIT_SITE_H_
#define CONCERT_POLICIES_AUTO_SPLIT_SITE_H_

#include <span>

#include "policies/cost/cost_model.h"
#include "policies/seam/work.h"
#include "policies/seam/work_list.h"

namespace concert::policies {

// The last op launched on a lane, beside which streams would run.
struct Tail {
  const Work* work = nullptr;
  OpCost cost;
  int follower = -1;  // which of the ops offered would go behind it on that lane
};

// Where launches go, what is there already, and what they are planned for.
struct Site {
  SmSet sms;
  int lane_limit = 1;  // launches side by side at most: 1 to kNormalLaneCount
  // kChain: one of the ops follows a launch that is unfinished on the groups' lane.
  GroupGoal goal = GroupGoal::kLatency;
  // What runs on the lanes of what would go side by side. None where groups go out: they follow
  // one another on one lane.
  std::span<const Tail> tails;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_SPLIT_SITE_H_
