// Which lanes ops of a scope go to that go out side by side, and beside what.
#ifndef CONCERT_POLICIES_AUTO_SIDE_BY_SIDE_H_
#define CONCERT_POLICIES_AUTO_SIDE_BY_SIDE_H_

#include "policies/auto/scope.h"
#include "policies/auto/split/launch_split.h"
#include "policies/cost/cost_memo.h"
#include "policies/seam/lane_book.h"

namespace concert::policies {

// Where none is for groups: a lane for each op, and what of its class runs on the lanes. Work of a
// lower class is no reason to wait. What goes one by one goes behind what ends last of the class,
// so that nothing runs beside it. Keeps as many ops as there are lanes, such as would be late
// first.
void LookBeside(CostMemo& memo, LaneBook& lanes, Scope& scope);

// Where groups were possible, but streams are better: a lane for each op of `split`.
void TakeLanes(const LaunchSplit& split, LaneBook& lanes, Scope& scope);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_SIDE_BY_SIDE_H_
