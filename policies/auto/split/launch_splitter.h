// How the ready GEMMs of one class are split into launches that follow one another: candidates are
// made, and of those that break no rule the best is chosen.
//
// Do no harm. A chosen split keeps to all of these, by prediction:
//   1. No launch takes longer than its ops one after the other, each with its best kernel alone.
//   2. No session is kept waiting: its last op ends no later than FairBounds allows.
//   3. Urgent ops (whose deadline would be missed otherwise) go first, and all others may be later
//      by their time: that is what a deadline asks for.
#ifndef CONCERT_POLICIES_AUTO_SPLIT_LAUNCH_SPLITTER_H_
#define CONCERT_POLICIES_AUTO_SPLIT_LAUNCH_SPLITTER_H_

#include <array>
#include <span>

#include "policies/auto/split/candidate.h"
#include "policies/auto/split/group_candidates.h"
#include "policies/auto/split/launch_split.h"
#include "policies/auto/split/launch_times.h"
#include "policies/auto/split/offer.h"
#include "policies/auto/split/site.h"
#include "policies/cost/corrections.h"
#include "policies/cost/cost_model.h"
#include "policies/cost/tuned_table.h"
#include "policies/seam/work_list.h"

namespace concert::policies {

// A plan stops after this much time; the rest is decided later, when more is known. Ten times what
// passes between the end of a plan and the start of the next (ADR 13, "What the constants rest
// on").
inline constexpr float kHorizonUs = 200;

// Allocates nothing after construction. Not thread-safe.
class LaunchSplitter {
 public:
  // Both pointers may be null and must outlive this.
  LaunchSplitter(const DeviceModel& device, const TunedTable* tuned, WorkListCompiler* compiler)
      : times_(device, tuned, compiler) {}

  // As the constructor's.
  void UseTuned(const TunedTable* tuned) { times_.UseTuned(tuned); }

  // The best split of `ops`, 1 to kMaxReady of them in the snapshot's order, at `site`. Under a
  // budget groupable ops only go into group launches, which keep to it exactly; to library kernels
  // it is a hint. `ratios`: actual over predicted time of each arrangement.
  void Choose(std::span<const SplitOp> ops, const Site& site, const Ratios& ratios,
              LaunchSplit& result);

  // Keeps the work lists of `split`, which is one of these ops at `site`, and compiles those
  // anew that are gone.
  void KeepLists(std::span<const Work* const> works, const Site& site, LaunchSplit& split);

 private:
  static constexpr int kMaxCandidates = 12;

  void TryGroups(Grouping grouping, bool join_rows);
  void TryStreams();
  void AvoidMixture();
  bool Confirm(Candidate& candidate, LaunchSplit& result);
  bool ConfirmStep(std::span<const Problem> problems, float ratio, Step& step) const;
  int StepsToLaunch(const Candidate& candidate) const;
  void WriteResult(const Candidate& candidate, int steps, LaunchSplit& result) const;

  LaunchTimes times_;

  // Of the choice at hand.
  Offer offer_;
  StepProblems problems_;
  int candidate_count_ = 0;
  std::array<Candidate, kMaxCandidates> candidates_;  // the first: every op in a launch of its own
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_SPLIT_LAUNCH_SPLITTER_H_
