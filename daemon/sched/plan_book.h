// The books of what was launched: plans, their launches and ops, from the decision to the last end.
// Makes the records for telemetry and finds the plans that a policy can learn from. What the times
// mean: telemetry/records.h. Fixed storage; not thread-safe.
#ifndef CONCERT_DAEMON_SCHED_PLAN_BOOK_H_
#define CONCERT_DAEMON_SCHED_PLAN_BOOK_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/sched/coordinator.h"
#include "daemon/sched/op_pool.h"
#include "daemon/telemetry/records.h"
#include "policies/seam/plan.h"
#include "policies/seam/policy.h"

namespace concert::daemon {

class PlanBook {
 public:
  static constexpr int kMaxComputePlans = 64;   // in flight
  static constexpr int kMaxCollectives = 1024;  // in flight, each a plan of its own
  static constexpr uint16_t kNoLaunch = 0xffff;
  // Plans that share their time, see TakeOutcomes, where forms never stop to take turns.
  static constexpr size_t kMaxShared = 8;
  // The same where plans never stop to overtake one another: what ran of others when the first of
  // them started is then about as much as what runs of others when the last ends (ADR 17).
  static constexpr size_t kMaxOvertaking = 16;

  PlanBook();

  // `priority`: of the plan's lowest op. REQUIRES: fewer than kMaxComputePlans are open.
  uint16_t OpenPlan(const policies::Plan& plan, policies::Priority priority, Time now);
  // A collective's part that was offered at slot.flight.launched_at is enqueued now: a plan with
  // one launch, which is predicted to take what the reservation says. kNoLaunch, under which only
  // the op's own record is kept, if kMaxCollectives are open.
  uint16_t LaunchCollective(const OpSlot& slot, const Reservation& reservation, Time now);
  // `policy_us`: what the policy predicted, which outcomes are held against. `predicted_us`: when
  // what runs already is considered, too; see PlanRecord. To be called when the plan has its ops:
  // one op has nothing to be compared with, its serial_us is its predicted_us.
  void SetPrediction(uint16_t plan, float policy_us, float predicted_us, float serial_us);

  uint16_t OpenLaunch(uint16_t plan, const policies::PlannedLaunch& launch, Time now);
  // Adds `slot` to the launch that slot.flight.launch names; slot.solo_us is set.
  void Add(const OpSlot& slot);
  // Counts another session among those of the launch's plan.
  void AddSession(uint16_t launch) { ++plans_[launches_[launch].plan].record.session_count; }
  // Which plan, counting from 1: never the same for two plans.
  uint64_t PlanNumber(uint16_t launch) const { return plans_[launches_[launch].plan].record.plan; }

  // A launched op has ended.
  void Finish(const OpSlot& slot, Time now);
  // An op that was launched will not end there.
  void Withdraw(const OpSlot& slot, Time now);
  // An op ended without a plan: it failed before its launch, or its launch is kNoLaunch.
  void RecordUnplanned(const OpSlot& slot, Time now);

  int compute_plans() const { return compute_plans(policies::Priority::kLow); }
  // Those of this class and of higher ones.
  int compute_plans(policies::Priority priority) const {
    int count = 0;
    for (size_t i = policies::IndexOf(priority); i < policies::kPriorityCount; ++i) {
      count += compute_plans_[i];
    }
    return count;
  }
  int compute_ops() const { return compute_ops_; }  // of the plans that are open, ended ones too
  int collectives() const { return collectives_; }
  int group_launches() const { return group_launches_; }  // with unfinished ops

  // Plans that ended, if they tell how good the policy's predictions were: the policy has named
  // them, all their ops finished without a failure, and from their start to their end nothing ran
  // but plans of their class. Plans overlap, as they do in a steady state: what they took is the
  // time from the end of those before, or from their first launch if that was later, and they share
  // it as they were predicted to. Those share it that ended since the last call, of which none is
  // seen to end first; that overtook one another; and all up to one that is followed by one of its
  // form, since library kernels that start beside the end of a group take its time, not theirs. The
  // first plan on an idle GPU tells something only if nothing was launched before it had ended
  // (ADR 17, "Outcomes"). Valid until the next call.
  std::span<const policies::Outcome> TakeOutcomes() {
    return ended_.newest == 0 ? std::span<const policies::Outcome>() : ShareTime();
  }
  // Another policy takes over: what earlier plans come to is none of its business.
  void ForgetPolicy() {
    ++policy_epoch_;
    ended_.clear = false;
  }

  // What ended since the caller last cleared them.
  std::vector<OpRecord>& op_records() { return op_records_; }
  std::vector<PlanRecord>& plan_records() { return plan_records_; }
  bool has_records() const { return !op_records_.empty() || !plan_records_.empty(); }

 private:
  struct PlanSlot {
    bool compute = false;  // counts against the depth
    policies::Priority priority = policies::Priority::kNormal;
    bool began_idle = false;  // no other compute plan was open
    bool clean = false;  // nothing of it failed or was withdrawn, and nothing of another kind ended
    bool left_out = false;  // part of its time went by in one that cannot be told whose it was
    uint32_t policy_epoch = 0;
    uint16_t unfinished = 0;  // ops
    uint64_t tag = 0;
    float policy_us = 0;  // predicted
    float solo_sum_us = 0;
    // Shares of the plan's time (OpRecord::gpu_us), as in generalised processor sharing (Parekh and
    // Gallager 1993): time per unit of solo time that every op still unfinished has had.
    float unfinished_solo_us = 0;
    double time_per_solo = 0;
    Time launched_at = 0;  // its first launch
    Time started_at = 0;   // of its earliest launch; 0: none of its ops has finished
    Time shared_until = 0;
    Time time_ns = 0;  // that has been shared
    PlanRecord record;
  };

  struct LaunchSlot {
    uint16_t plan = 0;
    uint16_t unfinished = 0;  // ops
    policies::Form form = policies::Form::kSingle;
    policies::Lane lane = policies::kNoLane;
    Time launched_at = 0;
    Time started_at = 0;  // 0: none of its ops has finished
  };

  struct LaneSlot {
    Time last_finish = 0;
  };

  int& OpenCount(const PlanSlot& plan) {
    return plan.compute ? compute_plans_[policies::IndexOf(plan.priority)] : collectives_;
  }
  uint16_t Open(bool compute, policies::Priority priority, policies::Reason reason, Time now);
  // The op's part of its plan's time, to which it adds the time from `since`, the last end on its
  // lane, to `now`. So launches that overlap share the time of their lane.
  static float TakeShare(PlanSlot& plan, float solo_us, Time started_at, Time since, Time now);
  void AddTo(uint16_t launch, const OpSlot& slot);
  void Leave(const OpSlot& slot, Time now);
  void Close(uint16_t plan, Time now);
  // Takes the plan off the list of open ones and says whether all of them are of its class; if not,
  // those whose time its end makes unclear teach nothing.
  bool CloseBesideItsClass(uint16_t plan);
  void AddEnded(const PlanSlot& plan, bool clear, Time now);
  bool TimeIsTheirs() const;
  std::span<const policies::Outcome> ShareTime();

  std::vector<PlanSlot> plans_;
  std::vector<uint16_t> free_plans_;
  std::vector<LaunchSlot> launches_;
  std::vector<uint16_t> free_launches_;
  std::array<uint16_t, kMaxComputePlans> open_;  // compute plans, oldest first
  int open_count_ = 0;
  std::array<LaneSlot, policies::kLaneCount> lanes_;
  std::array<int, policies::kPriorityCount> compute_plans_{};
  int compute_ops_ = 0;
  int collectives_ = 0;
  int group_launches_ = 0;
  uint64_t next_plan_ = 1;
  uint32_t policy_epoch_ = 0;

  Time last_plan_end_ = 0;
  // Plans that ended, none of which has been told as an outcome.
  struct {
    std::vector<policies::Outcome> plans;
    Time since = 0;       // the end of the plan before them, or their first launch
    uint64_t newest = 0;  // PlanRecord::plan
    policies::Form form = policies::Form::kSingle;  // of the last of them
    bool clear = true;                              // it can be said whose time that was
  } ended_;
  std::vector<policies::Outcome> outcomes_;

  std::vector<OpRecord> op_records_;
  std::vector<PlanRecord> plan_records_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_PLAN_BOOK_H_
