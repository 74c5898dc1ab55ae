// What of a scope goes into group launches now, and what those are planned for.
#ifndef CONCERT_POLICIES_AUTO_GROUPS_H_
#define CONCERT_POLICIES_AUTO_GROUPS_H_

#include "policies/auto/scope.h"
#include "policies/auto/sm_budgets.h"
#include "policies/auto/split_chooser.h"
#include "policies/cost/cost_model.h"

namespace concert::policies {

// The groups' lane, and what they are planned for: throughput behind a launch that none of them
// waits for, since what overlaps it is not late by its own imbalance.
void LookAtLane(Scope& scope);

// Where much more of the class's work is ready than runs, half of both: while one half runs those
// come back who wait for the other. All that is ready would be planned as a long launch and then a
// short one by turns, and behind the short one nothing is ready in time.
void TakeHalf(const DeviceModel& device, Scope& scope);

// On an idle lane: whether the first step of a chain is planned as the steps behind it are. What is
// best alone may be a library kernel, whose end no step overlaps, or take the SMs on which the next
// would set up; so it must be faster by more than that costs. Long ones stay as they are: they may
// be of pairs of blocks, which take part in no chain.
void ChooseFirstStep(Budget budget, SplitChooser& chooser, Scope& scope);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_GROUPS_H_
