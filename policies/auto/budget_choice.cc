#include "policies/auto/budget_choice.h"

#include <algorithm>

#include "policies/auto/held_by_collectives.h"

namespace concert::policies {
namespace {

// SMs that are late by less might as well not be: a block of a collective and one of a launch take
// about as long to follow one another.
constexpr float kLeastLateUs = 8;

// A launch that ends before the collectives do has the SMs that they leave. A longer one has all:
// those that they hold now take part when they are free.
Budget ChooseBesideCollectives(const Scope& scope, const Held& held, SmBudgets& budgets,
                               SplitChooser& chooser) {
  if (held.near) return Budget::kBesideCollective;
  const Snapshot& snapshot = *scope.snapshot;
  const Time start = std::max(snapshot.now, snapshot.lanes[scope.serial_lane].busy_until);
  const float late_us = static_cast<float>(held.until - start) * 1e-3f;
  if (late_us < kLeastLateUs) return Budget::kAll;
  if (chooser.Choose(scope, Budget::kBesideCollective).PredictedUs() <= late_us) {
    return Budget::kBesideCollective;
  }
  budgets.UseLate(late_us);
  return Budget::kLate;
}

}  // namespace

Budget ChooseBudget(const Scope& scope, const RunningCompute& running, const ClassHistory& history,
                    int offered_sms, SmBudgets& budgets, SplitChooser& chooser) {
  const Time now = scope.snapshot->now;
  const bool outranked = history.HigherActive(scope.priority_class, now, kActiveNs);
  Budget whole = outranked ? Budget::kBesideReserve : Budget::kAll;
  const Held held = HeldByCollectives(*scope.snapshot, offered_sms);
  if (held.sms > 0 && (!outranked || budgets.device().sm_count - held.sms < budgets.SmsOf(whole))) {
    budgets.LeaveToCollectives(held.sms);
    whole = outranked ? Budget::kBesideCollective
                      : ChooseBesideCollectives(scope, held, budgets, chooser);
  }
  const Time lower_until = running.LowerUntil(scope.priority_class);
  if (lower_until <= now) return whole;
  const float wait_us = static_cast<float>(lower_until - now) * 1e-3f;
  const float reserve_us = chooser.Choose(scope, Budget::kReserve).all_us;
  return reserve_us <= wait_us + chooser.Choose(scope, whole).all_us ? Budget::kReserve : whole;
}

}  // namespace concert::policies
