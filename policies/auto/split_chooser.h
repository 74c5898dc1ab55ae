// The launch split of a scope: remembered if its signature has been seen, else chosen anew, and
// corrected by what plans of it took.
#ifndef CONCERT_POLICIES_AUTO_SPLIT_CHOOSER_H_
#define CONCERT_POLICIES_AUTO_SPLIT_CHOOSER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "policies/auto/plan_cache.h"
#include "policies/auto/scope.h"
#include "policies/auto/sm_budgets.h"
#include "policies/auto/split/launch_splitter.h"
#include "policies/cost/corrections.h"
#include "policies/cost/tuned_table.h"
#include "policies/seam/policy.h"

namespace concert::policies {

// Allocates nothing after construction. Not thread-safe.
class SplitChooser {
 public:
  // `budgets` must outlive this and has the same tuned times.
  SplitChooser(const PolicyInputs& inputs, SmBudgets& budgets);

  // As Policy's. Learn: true if the choice should be made anew.
  void Reclaim();
  bool Learn(const Outcome& outcome);
  void UseTuned(std::shared_ptr<const TunedTable> tuned);

  // Whether group launches are possible at all.
  bool may_group() const { return compiler_ != nullptr; }

  void StartDecision() { chosen_anew_ = false; }
  // The best split of the scope's ops on the budget's SMs. Where one of them has a deadline, those
  // that would miss theirs but can still meet it go first. Valid until the next call.
  LaunchSplit& Choose(const Scope& scope, Budget budget);
  // Whether something had to be chosen since StartDecision.
  bool chosen_anew() const { return chosen_anew_; }
  // `split`, the last that Choose has given, is planned. Returns its tag.
  uint64_t Planned(const LaunchSplit& split);

 private:
  LaunchSplit& FindOrSplit(const Scope& scope, Budget budget);
  void Sign(const Scope& scope, Budget budget);
  void FindEnds(const Scope& scope, Budget budget, const LaunchSplit& split,
                std::span<float> end_us);
  bool MarkUrgent(const Scope& scope, Budget budget, const LaunchSplit& split);
  LaunchSplit* Known();
  uint64_t TimesHash() const;
  LaunchSplit& Remember(const LaunchSplit& split);

  SmBudgets& budgets_;
  std::shared_ptr<const TunedTable> tuned_;
  uint32_t table_ = 0;                                // counts the tables there have been
  const std::unique_ptr<WorkListCompiler> compiler_;  // null: no group launches
  LaunchSplitter splitter_;
  PlanCache cache_;
  Corrections corrections_;

  // Of the choice at hand.
  Signature signature_;
  Corrections::Subject subject_;
  std::array<bool, kMaxReady> urgent_;
  std::array<SplitOp, kMaxReady> ops_;
  LaunchSplit chosen_;
  bool chosen_anew_ = false;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_SPLIT_CHOOSER_H_
