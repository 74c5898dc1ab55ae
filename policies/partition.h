// How the ready GEMMs of one class are split into launches that follow one another: the candidates,
// their predicted times, and the rules that no choice may break.
//
// Do no harm. A chosen partition keeps to all of these, by prediction:
//   1. No launch takes longer than its ops one after the other, each with its best kernel alone.
//   2. No session is kept waiting: its last op ends no later than FairTurns allows.
//   3. Urgent ops (whose deadline would be missed otherwise) go first, and all others may be later
//      by their time: that is what a deadline asks for.
#ifndef CONCERT_POLICIES_PARTITION_H_
#define CONCERT_POLICIES_PARTITION_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "policies/corrections.h"
#include "policies/cost_model.h"
#include "policies/fair_turns.h"
#include "policies/form.h"
#include "policies/plan.h"
#include "policies/schedule_lender.h"
#include "policies/tuned_table.h"

namespace concert::policies {

// Ops that go out together: one launch, or for kStreams one for each op.
struct Part {
  Form form = Form::kSingle;
  uint16_t count = 0;
  float predicted_us = 0;                   // from its start to its end
  float serial_us = 0;                      // its ops one after the other
  uint64_t repack_bytes = 0;                // kGroup: Work::repack_bytes of its ops
  bool tuned = false;                       // kGroup, kStreams: predicted_us was measured
  const GroupSchedule* schedule = nullptr;  // kGroup; valid as long as Partition::borrowed is
};

// Parts follow one another. Within a part ops keep the order in which they were offered.
struct Partition {
  static constexpr int kMaxParts = Plan::kMaxLaunches;

  std::array<Part, kMaxParts> parts;
  // The ops of the first part, then of the next, by their place among those offered. What is not
  // here is left for a later plan.
  std::array<uint8_t, kMaxReady> order;
  static_assert(kMaxReady - 1 <= UINT8_MAX);
  uint16_t op_count = 0;
  uint8_t part_count = 0;
  uint16_t tuned = 0;         // ops whose predicted time was measured
  Form form = Form::kSingle;  // that of most interest: group, else streams, else single
  Arrangement arrangement = Arrangement::kSingle;  // what its outcomes teach about
  float all_us = 0;  // of all ops offered, those for a later plan included
  ScheduleLender::Stamp borrowed;
  // With which measured times it was chosen: their hash, and the number of the table.
  uint64_t times_hash = 0;
  uint32_t table = 0;

  std::span<Part> part_span() { return {parts.data(), part_count}; }
  std::span<const Part> part_span() const { return {parts.data(), part_count}; }
  float PredictedUs() const;
  float SerialUs() const;
};

// Where group launches go and what they are planned for.
struct GroupSite {
  int sm_budget = 0;  // 0: all SMs
  // kChain: one of the ops follows a launch that is unfinished on the groups' lane.
  GroupGoal goal = GroupGoal::kLatency;
};

// One ready GEMM of the class that is planned.
struct PartitionOp {
  const Work* work = nullptr;
  OpCost cost;                // with the best library kernel on the budget
  bool same_session = false;  // as the op before
  bool urgent = false;
};

// Allocates nothing after construction. Not thread-safe.
class Partitioner {
 public:
  // `tuned` may be null. Both pointers must outlive this.
  Partitioner(const DeviceModel& device, const TunedTable* tuned, ScheduleLender* lender);

  // As the constructor's.
  void UseTuned(const TunedTable* tuned) { tuned_ = tuned; }

  // The best partition of `ops`, 1 to kMaxReady of them in the snapshot's order, on the SMs and
  // with the goal of `site`, with at most `lane_limit` launches side by side. Under a budget
  // groupable ops only go into group launches, which keep to it exactly; to library kernels it is a
  // hint.
  void Choose(std::span<const PartitionOp> ops, const GroupSite& site, int lane_limit,
              const Ratios& ratios, Partition& result);

  // Borrows the schedules of the groups of `partition`, which is one of these ops, anew.
  void Borrow(std::span<const Work* const> works, const GroupSite& site, Partition& partition);

 private:
  // An op with what it costs in a launch of its own.
  struct Item {
    float alone_us = 0;   // the launch that is best for it, before it is corrected
    float serial_us = 0;  // the measure of harm: the best kernel alone
    uint16_t session = 0;
    Form alone_form = Form::kSingle;
    bool loose = false;  // may join a group
    bool urgent = false;
    bool tuned = false;
  };
  // Positions in by_time_: [0, long_from) is one group, [long_from, alone_from) the next, and what
  // follows is launched one by one. Groups of several dtypes are several launches.
  struct Cut {
    int long_from = 0;
    int alone_from = 0;
  };
  struct Draft {
    static constexpr uint8_t kLater = 255;  // in part_of: not in this plan
    static_assert(Partition::kMaxParts < kLater);

    std::array<Part, Partition::kMaxParts> parts;
    std::array<uint8_t, kMaxReady> part_of;
    int part_count = 0;
    Arrangement arrangement = Arrangement::kSingle;
    float score_us = 0;
  };
  static constexpr int kMaxDrafts = 12;

  // What is planned.
  void Prepare(std::span<const PartitionOp> ops);
  Item ItemOf(const PartitionOp& op);
  // Drafts.
  void DraftCuts();
  void DraftStreams(int lane_limit);
  void Try(Cut cut);
  void Build(Cut cut, Draft& draft) const;
  void AddGroups(std::span<const uint8_t> marks, uint8_t mark, bool urgent, Draft& draft) const;
  void AddAlone(std::span<const uint8_t> marks, bool urgent, Draft& draft) const;
  uint8_t AddOne(int op, Draft& draft) const;
  void Evaluate(Draft& draft);
  float LaterUs(const Draft& draft) const;
  std::optional<float> TunedUs(std::span<const Problem> problems, Form form) const;
  // Not corrected.
  float GroupUs(std::span<const Problem> problems, uint64_t repack_bytes, bool& tuned);
  static Arrangement ArrangementOf(const Draft& draft);
  float Ratio(Arrangement arrangement) const { return ratios_[static_cast<int>(arrangement)]; }
  // The choice.
  bool Settle(Draft& draft, Partition& result);
  bool SettlePart(std::span<const Problem> problems, float ratio, Part& part);
  bool Harms(const Draft& draft) const;
  int PartsToLaunch(const Draft& draft) const;
  void WriteResult(const Draft& draft, int parts, Partition& result) const;
  std::span<const Problem> ProblemsOf(const Draft& draft, int part) const;
  void Scatter(const Draft& draft);

  const DeviceModel device_;
  const TunedTable* tuned_;
  ScheduleLender* const lender_;

  // Of the choice at hand.
  int op_count_ = 0;
  int loose_count_ = 0;
  int draft_count_ = 0;
  GroupSite site_;
  int problems_predicted_ = 0;
  Ratios ratios_{};
  std::array<Item, kMaxReady> items_;
  std::array<OpCost, kMaxReady> costs_;
  std::array<const Work*, kMaxReady> works_;
  FairTurns turns_;
  std::array<uint16_t, kMaxReady> by_time_;                // loose ops, shortest first
  std::array<Problem, kMaxReady> problems_;                // part after part
  std::array<uint16_t, Partition::kMaxParts> part_begin_;  // into problems_
  std::array<Draft, kMaxDrafts> drafts_;  // the first: every op in a launch of its own
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_PARTITION_H_
