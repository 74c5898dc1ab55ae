// How the ready GEMMs of one class are split into launches that follow one another: the candidates,
// their predicted times, and the rules that no choice may break.
//
// Do no harm. A chosen split keeps to all of these, by prediction:
//   1. No launch takes longer than its ops one after the other, each with its best kernel alone.
//   2. No session is kept waiting: its last op ends no later than FairBounds allows.
//   3. Urgent ops (whose deadline would be missed otherwise) go first, and all others may be later
//      by their time: that is what a deadline asks for.
#ifndef CONCERT_POLICIES_AUTO_LAUNCH_SPLIT_H_
#define CONCERT_POLICIES_AUTO_LAUNCH_SPLIT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "policies/auto/fair_bounds.h"
#include "policies/cost/corrections.h"
#include "policies/cost/cost_model.h"
#include "policies/cost/tuned_table.h"
#include "policies/seam/form.h"
#include "policies/seam/plan.h"

namespace concert::policies {

// Ops that go out together: one launch, or for kStreams one for each op. Its predicted time is from
// its start to its end.
struct Step : PlannedLaunch {
  float serial_us = 0;        // its ops one after the other
  uint64_t repack_bytes = 0;  // kGroup: Work::repack_bytes of its ops
  bool tuned = false;         // kGroup, kStreams: predicted_us was measured
  bool rows = false;          // its ops are row ops: in one launch, without a work list
  uint32_t list_version = 0;  // of work_list, when it was the step's

  int launches() const { return form == Form::kStreams ? count : 1; }
};

// Steps follow one another. Within a step ops keep the order in which they were offered.
struct LaunchSplit {
  static constexpr int kMaxSteps = Plan::kMaxLaunches;

  std::array<Step, kMaxSteps> steps;
  // The ops of the first step, then of the next, by their place among those offered. What is not
  // here is left for a later plan.
  std::array<uint8_t, kMaxReady> order;
  static_assert(kMaxReady - 1 <= UINT8_MAX);
  uint16_t op_count = 0;
  uint8_t step_count = 0;
  uint16_t tuned = 0;         // ops whose predicted time was measured
  Form form = Form::kSingle;  // that of most interest: group, else streams, else single
  Arrangement arrangement = Arrangement::kSingle;  // what its outcomes teach about
  float all_us = 0;  // of all ops offered, those for a later plan included
  // With which measured times it was chosen: their hash, and the number of the table.
  uint64_t times_hash = 0;
  uint32_t table = 0;

  std::span<Step> step_span() { return {steps.data(), step_count}; }
  std::span<const Step> step_span() const { return {steps.data(), step_count}; }
  float PredictedUs() const;
};

// The last op launched on a lane, beside which streams would run.
struct Tail {
  const Work* work = nullptr;
  OpCost cost;
  int follower = -1;  // which of the ops offered would go behind it on that lane
};

// Where launches go, what is there already, and what they are planned for.
struct Site {
  SmSet sms;
  int lane_limit = 1;  // launches side by side at most
  // kChain: one of the ops follows a launch that is unfinished on the groups' lane.
  GroupGoal goal = GroupGoal::kLatency;
  // What runs on the lanes of what would go side by side. None where groups go out: they follow
  // one another on one lane.
  std::span<const Tail> tails;
};

// One ready op of the class that is planned.
struct SplitOp {
  const Work* work = nullptr;
  OpCost cost;                // with the best library kernel on the budget
  bool same_session = false;  // as the op before
  bool urgent = false;
};

// Allocates nothing after construction. Not thread-safe.
class LaunchSplitter {
 public:
  // Both pointers may be null and must outlive this.
  LaunchSplitter(const DeviceModel& device, const TunedTable* tuned, WorkListCompiler* compiler);

  // As the constructor's.
  void UseTuned(const TunedTable* tuned) { tuned_ = tuned; }

  // The best split of `ops`, 1 to kMaxReady of them in the snapshot's order, at `site`. Under a
  // budget groupable ops only go into group launches, which keep to it exactly; to library kernels
  // it is a hint. `ratios`: actual over predicted time of each arrangement.
  void Choose(std::span<const SplitOp> ops, const Site& site, const Ratios& ratios,
              LaunchSplit& result);

  // Keeps the work lists of `split`, which is one of these ops, and compiles those anew that are
  // gone.
  void KeepLists(std::span<const Work* const> works, const Site& site, LaunchSplit& split);

 private:
  // An op with what it costs in a launch of its own.
  struct Item {
    float alone_us = 0;   // the launch that is best for it, before it is corrected
    float serial_us = 0;  // the measure of harm: the best kernel alone
    uint16_t session = 0;
    Form alone_form = Form::kSingle;
    Carrier carrier = Carrier::kNone;  // whose launches it may share with others
    bool urgent = false;
    bool tuned = false;
  };
  // Positions in by_time_: [0, long_from) is one group, [long_from, alone_from) the next, and what
  // follows is launched one by one. Groups of several dtypes are several launches.
  struct Grouping {
    int long_from = 0;
    int alone_from = 0;
  };
  struct Candidate {
    static constexpr uint8_t kLater = 255;  // in step_of: not in this plan
    static_assert(LaunchSplit::kMaxSteps < kLater);

    std::array<Step, LaunchSplit::kMaxSteps> steps;
    std::array<uint8_t, kMaxReady> step_of;
    int step_count = 0;
    Arrangement arrangement = Arrangement::kSingle;
    float score_us = 0;
  };
  static constexpr int kMaxCandidates = 12;

  // What is planned.
  void Prepare();
  // Of the ops offered; without, all candidates are of library kernels.
  bool may_group() const { return groupable_count_ + row_count_ > 0; }
  Item ItemOf(const SplitOp& op);
  // Candidates.
  void ProposeGroupings();
  void ProposeStreams();
  void TryStreams(Step step, const CoRunSet& set, double wave_us);
  float GainBesideTails(const Step& step, const CoRunSet& set, float added_us) const;
  void Try(Grouping grouping);
  void Build(Grouping grouping, bool join_rows, Candidate& candidate) const;
  void AddGroups(std::span<const uint8_t> marks, uint8_t mark, bool urgent,
                 Candidate& candidate) const;
  void AddAlone(std::span<const uint8_t> marks, bool urgent, bool join_rows,
                Candidate& candidate) const;
  uint8_t AddOne(int op, Candidate& candidate) const;
  void Evaluate(Candidate& candidate);
  float ScoreUs(float gpu_us, float host_us) const;
  float LaterUs(const Candidate& candidate) const;
  std::optional<float> TunedUs(std::span<const Problem> problems, Form form) const;
  // Not corrected.
  float RowsUs(const Candidate& candidate, int step) const;
  float GroupUs(std::span<const Problem> problems, uint64_t repack_bytes, bool& tuned);
  static Arrangement ArrangementOf(const Candidate& candidate);
  float Ratio(Arrangement arrangement) const { return ratios_[static_cast<int>(arrangement)]; }
  // The choice.
  bool Confirm(Candidate& candidate, LaunchSplit& result);
  bool ConfirmStep(std::span<const Problem> problems, float ratio, Step& step);
  void CompileList(std::span<const Problem> problems, const Site& site, Step& step);
  bool Harms(const Candidate& candidate) const;
  int StepsToLaunch(const Candidate& candidate) const;
  void WriteResult(const Candidate& candidate, int steps, LaunchSplit& result) const;
  std::span<const Problem> ProblemsOf(const Candidate& candidate, int step) const;
  void Scatter(const Candidate& candidate);

  const DeviceModel device_;
  const TunedTable* tuned_;
  WorkListCompiler* const compiler_;  // null: no group launches

  // Of the choice at hand.
  std::span<const SplitOp> ops_;
  int op_count_ = 0;
  int groupable_count_ = 0;
  int row_count_ = 0;
  int candidate_count_ = 0;
  Site site_;
  int problems_predicted_ = 0;
  Ratios ratios_{};
  std::array<Item, kMaxReady> items_;
  FairBounds bounds_;
  std::array<uint16_t, kMaxReady> by_time_;                  // groupable ops, shortest first
  std::array<Problem, kMaxReady> problems_;                  // step after step
  std::array<uint16_t, LaunchSplit::kMaxSteps> step_begin_;  // into problems_
  std::array<Candidate, kMaxCandidates> candidates_;  // the first: every op in a launch of its own
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_LAUNCH_SPLIT_H_
