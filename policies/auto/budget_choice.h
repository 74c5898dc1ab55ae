// Which SMs groups of a class are planned for: beside a higher class, lower work that runs, and
// collectives. The rules stand in auto.h, "Classes".
#ifndef CONCERT_POLICIES_AUTO_BUDGET_CHOICE_H_
#define CONCERT_POLICIES_AUTO_BUDGET_CHOICE_H_

#include "policies/auto/scope.h"
#include "policies/auto/sm_budgets.h"
#include "policies/auto/split_chooser.h"
#include "policies/seam/classes.h"

namespace concert::policies {

// Longer than the gaps in the work of a session that is at it: 0.01 to 0.3 ms between ops handed
// over by one process to the next, 0.6 to 1 ms for a whole decode step.
inline constexpr Time kActiveNs = 5'000'000;

// `offered_sms`: that a collective which goes out now will hold. Tells `budgets` what is left to
// collectives. REQUIRES: scope.grouped.
Budget ChooseBudget(const Scope& scope, const RunningCompute& running, const ClassHistory& history,
                    int offered_sms, SmBudgets& budgets, SplitChooser& chooser);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_BUDGET_CHOICE_H_
