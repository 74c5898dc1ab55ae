// The default: what is ready goes out in the form and the co-run set that is predicted fastest.
//
// GEMMs of the highest ready class are split into launches by LaunchSplitter, whose header has the
// do-no-harm rules. Groups of a class share one lane, so that launch follows launch without waits
// between lanes. On devices without the group kernel, and for ops that it cannot carry, GEMMs go
// out side by side on streams or one by one.
//
// Classes. A plan has GEMMs of one class. Nothing that runs can be interrupted, so SMs are what
// keeps a higher class from waiting:
//   - While a higher class is active (seen within kActiveNs, budget_choice.h), launches of lower
//     ones leave it a reserve of ReserveOf(sm_count) SMs (sm_budgets.h).
//   - Launches of a higher class beside running work of a lower one take at most that reserve,
//     unless waiting for that work and then using all that is free is predicted to end earlier.
//     Work that is overdue is taken to run on: a launch on all SMs beside it would wait for it on
//     most of them, or take several rounds on the reserve.
//   - Library kernels do not keep to a budget. Beside running work of a higher class they go out
//     only if both get all the SMs and bandwidth they want. So do programs, which are not launched
//     ahead of ready GEMMs and row ops of a higher class either.
//   - Launches of any class leave a running collective the SMs that are reserved for it, if any
//     are (Snapshot::reserved_sms), and one whose last ranks are on their way as many.
//   - No class starves: when its first GEMM has waited kMaxHeldNs (scope.h) and no plan was its for
//     as long, the next plan is, out of turn, on the SMs that the reserve leaves.
// Without the group kernel no budget holds, so there only the last two count.
#ifndef CONCERT_POLICIES_AUTO_AUTO_H_
#define CONCERT_POLICIES_AUTO_AUTO_H_

#include <memory>

#include "policies/seam/policy.h"

namespace concert::policies {

// A decision goes through the files of this folder in this order: `auto` sends out what needs no
// weighing, `scope` says which class is planned, `groups` or `side_by_side` what it finds on its
// lanes, `budget_choice` on which SMs of `sm_budgets`, and `split_chooser` in which launches.
std::unique_ptr<Policy> MakeAuto(const PolicyInputs& inputs);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_AUTO_H_
