// The scheduler of one GPU as a pure state machine: events in, actions out. It knows no threads,
// clocks, devices or shared memory; the dispatcher feeds it and carries out what it says, and tests
// drive it the same way.
//
// Life of an op here:
//
//   Submit ──> queued ──(front of its queue, all it depends on done or launched)──> ready
//     ready ──(a plan names it)──> launched ──(timeline seen)──> finished
//     ready ──(a collective)──> offered ──(all ranks there)──> launched
//   A failed op keeps its place in its queue and completes, with its failure, when all before it
//   have finished: so a timeline never overtakes an op.
//
// Dependencies are paid on the device: an op is ready as soon as what it depends on is *launched*,
// and the launch names the lanes it must be ordered behind.
//
// A step costs what changed: Readiness says which queues to examine, and each kind of work has a
// bound per step, so that no amount of one keeps the others waiting.
#ifndef CONCERT_DAEMON_SCHED_SCHEDULER_H_
#define CONCERT_DAEMON_SCHED_SCHEDULER_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/config/defaults.h"
#include "daemon/quota/account.h"
#include "daemon/sched/actions.h"
#include "daemon/sched/coordinator.h"
#include "daemon/sched/ledger.h"
#include "daemon/sched/op_pool.h"
#include "daemon/sched/races.h"
#include "daemon/sched/readiness.h"
#include "daemon/telemetry/records.h"
#include "kernels/failure.h"
#include "policies/cost/collective_cost.h"
#include "policies/cost/cost_memo.h"
#include "policies/cost/memo.h"
#include "policies/seam/plan.h"
#include "policies/seam/policy.h"
#include "policies/seam/snapshot.h"
#include "policies/seam/window.h"

namespace concert::daemon {

using policies::Lane;
using policies::Time;

struct SchedulerOptions {
  uint8_t gpu = 0;
  uint32_t max_ops = 1 << 16;
  uint32_t max_queues = 1 << 14;
  // Late binding: a priority class holds back while `depth` plans of it or of higher classes are in
  // flight and the device still has `backlog_ns` of predicted work. The second bound keeps chains
  // of ops shorter than a launch's latency from draining the device.
  int depth = defaults::kDepth;
  int64_t backlog_ns = defaults::kBacklogUs * 1'000;
  // Of an op's waits, from when it is first in its queue.
  int64_t wait_timeout_ns = defaults::kWaitTimeoutMs * 1'000'000;
  // Whether races() are looked for: on the simulator.
  bool find_races = false;
};

class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, const policies::DeviceModel& device,
            std::unique_ptr<policies::Policy> policy);

  // --- Events ---

  // Queues of sessions. A removed queue takes no more ops and ends when those it has are finished;
  // `cancel` ends those that have not started. AddQueue returns kNone if the table is full.
  // `account`: of the session's user, charged for offered parts; outlives the queue, null: none.
  // `next_ticket`: of its first op.
  QueueId AddQueue(uint32_t session, policies::Priority priority, Account* account = nullptr,
                   uint64_t next_ticket = 1);
  // Returns how many ops it has cancelled.
  uint32_t RemoveQueue(QueueId queue, bool cancel);

  // A slot for an op that is about to be admitted; kNone when the pool is full. Fill op(),
  // local_waits, watched_waits and, if it was refused, failure; then Submit.
  OpId AllocateOp() { return pool_.Allocate(); }
  // The waits that the dispatcher still watches for the op, which ends or will not wait: none any
  // more.
  uint8_t TakeWatchedWaits(OpId op) { return std::exchange(pool_[op].watched_waits, uint8_t{0}); }
  // Appends to its queue. Tickets of a queue are consecutive.
  void Submit(OpId op, QueueId queue, Time now);

  // The dispatcher saw the timeline of op.waits[index] reach its value.
  void WaitSatisfied(OpId op, int index);
  // The op can never run. REQUIRES: not launched or offered.
  void Fail(OpId op, const kernels::Failure& failure);
  // Of an offered part: the parts of `ranks` ranks are with the rendezvous, the last since `since`.
  // Only for the policy to know.
  void RanksThere(OpId op, uint8_t ranks, Time since);
  // What may run beside a collective that is offered now: GEMMs that run, and those that are ready
  // or queued behind them.
  policies::Beside GemmsBeside(Time now);
  // Outcome of an offered part: enqueued on the device with this reservation, or failed.
  void PartLaunched(OpId op, const Reservation& reservation, Time now);
  void PartFailed(OpId op, const kernels::Failure& failure);
  // The device refused to launch this op, or gave it up; its timeline is still signalled in order.
  void LaunchFailed(OpId op, const kernels::Failure& failure);
  // The queue's timeline reads `value`: every op up to that ticket has finished.
  void TimelineSeen(QueueId queue, uint64_t value, Time now);
  // Every op that has not been launched fails with `failure`. Of offered parts the rendezvous says
  // what becomes.
  void FailQueued(const kernels::Failure& failure);
  // Every op fails with `failure`, what runs included: the device is gone and touches no memory and
  // no timeline any more.
  void FailAll(const kernels::Failure& failure);
  void SetPolicy(std::unique_ptr<policies::Policy>& policy) {
    policy_.swap(policy);
    ledger_.plans().ForgetPolicy();
  }

  // As policies::Policy::UseTuned; and what SMs collectives are likely to hold follows its curves.
  void UseTuned(std::shared_ptr<const policies::TunedTable> tuned) {
    device_.transport_curves = policies::CurvesOf(tuned.get());
    lone_sms_.Clear();
    policy_->UseTuned(std::move(tuned));
  }

  // --- The step ---

  // Appends what is to be done now. Call until the events are used up and nothing is appended.
  // REQUIRES: races() has nothing unchecked.
  void Step(Time now, Actions& actions);

  // --- Views ---

  // Queues with launched work: those whose timelines the dispatcher should read.
  // TimelineSeen changes the list.
  std::span<const QueueId> active_queues() const { return active_; }
  // Ticket of the queue's oldest launched op. REQUIRES: the queue is active.
  uint64_t OldestTicket(QueueId queue) const { return pool_[queues_[queue].head].op.ticket; }

  // The queue's launched op with this ticket, which has not been seen to end; kNone: there is none.
  OpId FindLaunched(QueueId queue, uint64_t ticket) const;

  // Whether what the wait is for is launched or has ended.
  bool WaitMet(const OpSlot::LocalWait& wait) const {
    return readiness_.reached(wait.queue) >= wait.value;
  }
  OpSlot& slot(OpId op) { return pool_[op]; }
  const OpSlot& slot(OpId op) const { return pool_[op]; }
  // Once the op's release (Actions::released) has been carried out.
  void FreeOp(OpId op) { pool_.Free(op); }
  // Null unless SchedulerOptions::find_races. What was submitted is to be checked before it is
  // launched, and after timelines have been read: what a client has seen end races with nothing.
  Races* races() { return races_.get(); }
  bool idle() const { return pool_.used() == 0; }
  uint32_t unfinished() const { return pool_.used(); }
  // How many more AllocateOp has room for.
  uint32_t free_ops() const { return options_.max_ops - pool_.used(); }
  // As Ledger::NextEnd.
  Time NextEnd(Time after) const { return ledger_.NextEnd(after); }
  int plans_in_flight() const { return ledger_.plans().compute_plans(); }
  uint32_t ready_count() const { return ready_count_; }
  // When waiting fronts are next due to fail, and whether a step has something to do before that:
  // what other processors do not announce.
  Time next_timeout() const { return readiness_.next_timeout(); }
  bool pending() const {
    // Held back runs that are cancelled leave nothing to decide.
    const bool holds_back = members_expected_ && ready_count_ > 0;
    return readiness_.news() || readiness_.waking() || !finished_.empty() || holds_back;
  }
  // Parts whose user has offered as many as it may; tried again and again.
  bool parts_stalled() const { return lists_[kStalled].first != kNone; }
  // Parts whose time has not come, which nothing rings for.
  bool parts_held_back() const { return lists_[kHeldBack].first != kNone; }
  // Queues examined so far, for tests.
  uint64_t examined() const { return examined_; }
  // Queues and ops that decisions have looked at so far, for tests.
  uint64_t looked_at() const { return looked_at_; }
  // Queues that are not reclaimed.
  uint32_t queue_count() const {
    return static_cast<uint32_t>(queues_.size() - free_queues_.size());
  }
  // Removed queues of which nothing is left, since the caller last cleared them; their slots are
  // kept until ReclaimQueue.
  std::vector<QueueId>& ended_queues() { return ended_queues_; }
  bool QueueEnded(QueueId queue) const { return queues_[queue].ended; }
  void ReclaimQueue(QueueId queue);
  // The session is over. REQUIRES: its queues are reclaimed.
  void ForgetSession(uint32_t session);

  // What ended since the caller last cleared them; to be taken after every step.
  std::vector<OpRecord>& op_records() { return ledger_.plans().op_records(); }
  std::vector<PlanRecord>& plan_records() { return ledger_.plans().plan_records(); }
  bool has_records() const { return ledger_.plans().has_records(); }

 private:
  // Lists of queues whose front is ready: by priority those of one step, as GEMMs and copies, then
  // by priority those of many, as programs, which are looked for alone where a class has no room;
  // then collectives; collectives that may be offered once their user's quota allows; and those
  // that follow something whose end is far off.
  static constexpr uint8_t kReadyOfManySteps = policies::kPriorityCount;
  static constexpr uint8_t kReadyCollective = 2 * policies::kPriorityCount;
  static constexpr uint8_t kStalled = kReadyCollective + 1;
  static constexpr uint8_t kHeldBack = kStalled + 1;
  static constexpr uint8_t kListCount = kHeldBack + 1;
  static constexpr uint8_t kNoList = kListCount;
  // Queues of a list that a decision looks at: more than a snapshot holds, so that the least served
  // of many come first. Ranking them takes some 10 us.
  static constexpr int kMaxCandidatesOfList = 2 * policies::kMaxReady;

  struct Queue {
    bool used = false;
    bool removed = false;
    bool ended = false;
    bool active = false;
    uint8_t list = kNoList;
    policies::Priority priority = policies::Priority::kNormal;
    uint32_t session = 0;
    uint32_t waiters = 0;                    // local waits of other ops on this queue
    uint32_t held = 0;                       // its ops that are not released
    QueueId previous = kNone, next = kNone;  // in its list
    uint32_t active_index = 0;
    OpId head = kNone;                     // oldest unfinished
    OpId front = kNone;                    // first that is neither launched nor offered
    OpId tail = kNone;                     // newest
    OpId last_launched = kNone;            // newest of [head, front)
    uint32_t share = 0;                    // index into shares_
    uint64_t submitted = 0, finished = 0;  // tickets
    Account* account = nullptr;
  };

  // In the order in which queues came.
  struct List {
    QueueId first = kNone, last = kNone;
  };

  // What a session has been given, for fair sharing. Kept while there is the session, so that new
  // queues pay for what it had through others.
  struct Share {
    std::array<int64_t, policies::kPriorityCount> served_ns{};  // by class
    uint64_t last_plan = 0;  // scratch: counts distinct sessions of a plan
  };

  // A ready run that goes with another one.
  struct Companion {
    uint16_t ready;  // the other's index in the snapshot
    OpId op;
  };

  // A ready op and what decides its place in the snapshot.
  struct Candidate {
    int8_t priority;
    int64_t ahead;  // how far its session is ahead of the least served, in fairness quanta
    Time ready_at;
    uint64_t admission;
    OpId op;

    bool operator<(const Candidate& other) const {
      if (priority != other.priority) return priority > other.priority;
      if (ahead != other.ahead) return ahead < other.ahead;
      if (ready_at != other.ready_at) return ready_at < other.ready_at;
      return admission < other.admission;
    }
  };

  // What a policy may pull of the queues.
  class QueueWindow final : public policies::Window {
   public:
    explicit QueueWindow(const Scheduler& scheduler) : scheduler_(scheduler) {}
    bool Follower(uint32_t op, policies::QueuedOp& follower) const override;

   private:
    const Scheduler& scheduler_;
  };

  // Examining (scheduler_examine.cc).
  void Examine(QueueId queue, Time now, Actions& actions);
  void ExamineTouched(Time now, Actions& actions);
  void CheckWaits(QueueId queue, OpSlot& slot, Time now);
  void MakeReady(QueueId queue, OpSlot& slot, Time now);
  bool FollowsSomethingFar(const OpSlot& slot, Time now) const;
  void TouchHeldBack();
  void FailUnreachable(OpSlot& slot);
  void FailTimedOut(OpSlot& slot);
  bool ChargePart(const Queue& queue, OpSlot& slot);
  void ReleasePart(OpSlot& slot);
  void CompleteFront(QueueId queue, Time now, Actions& actions);
  void PutOn(uint8_t list, QueueId queue);
  void TakeOff(QueueId queue);

  // Queues (scheduler.cc).
  void JoinShare(Queue& queue);
  int64_t& ServedNs(const Queue& queue);
  void LimitCredit(const Queue& queue);
  void CountService(const Queue& queue, int64_t ns);
  uint32_t FailFrom(OpId op, const kernels::Failure& failure);
  void TellRaces(OpId op, OpId previous);
  OpId FindUnfinished(const Queue& queue, uint64_t ticket) const;
  void Advance(QueueId queue, uint64_t ticket);
  void SetActive(QueueId queue, bool active);
  void ReturnToQueue(QueueId queue, OpId op);
  void ReleaseFinished(Actions& actions);
  void Release(OpId op, Actions& actions);
  void MaybeEnd(QueueId queue);

  // Deciding (scheduler_decide.cc).
  bool HasRoom(Time now, policies::Priority priority, bool more_expected) const;
  bool MoreExpected() const;
  static uint8_t ReadyList(policies::Priority priority, const policies::Work& work);
  void AddCandidates(uint8_t list, int limit);
  void RankCandidates(Time now);
  uint16_t ExpectedSms(const OpSlot& slot, const policies::Beside& beside);
  void ListRunning(Time now);
  bool WaitsElsewhere(const OpSlot& slot) const;
  bool BuildSnapshot(Time now);
  bool Decide(Time now, Actions& actions);
  void Apply(Time now, Actions& actions);
  void Launch(Time now, const policies::PlannedLaunch& planned, Ledger::OpenPlan& plan,
              Actions& actions);
  void Offer(Time now, const policies::PlannedLaunch& planned, Actions& actions);
  uint16_t TakeFromQueue(OpId op, OpState state, float solo_us);
  void CountSession(const OpSlot& slot);
  bool IsChained(const policies::PlannedLaunch& launch) const;
  uint16_t LanesBefore(const OpSlot& slot) const;
  // Calls visit(slot) for each launched op that is not seen to have ended and that `slot` depends
  // on: its predecessor in the queue and its waits.
  template <typename Visit>
  void VisitUnfinishedBefore(const OpSlot& slot, Visit visit) const {
    const Queue& queue = queues_[slot.queue];
    if (queue.last_launched != kNone) visit(pool_[queue.last_launched]);
    for (const OpSlot::LocalWait& wait : slot.local_waits) {
      const Queue& other = queues_[wait.queue];
      if (other.finished >= wait.value) continue;
      // The awaited op stands for all before it: each was ordered behind the one before.
      for (OpId op = other.head; op != other.front; op = pool_[op].next) {
        if (pool_[op].op.ticket < wait.value) continue;
        visit(pool_[op]);
        break;
      }
    }
  }
  kernels::Predecessor PredecessorOn(const OpSlot& slot, Lane lane) const;
  Lane LaneAfter(const Queue& queue) const;

  // Passes: runs that read the same weights go together (scheduler_passes.cc).
  uint32_t InFlight(const Queue& queue) const;
  bool JoinsPass(const Queue& queue, OpSlot& slot);
  void HoldBackForPasses(Time now);
  bool GoesWithAnother(OpId op);
  void SumUpPasses();
  float ShareUs(uint16_t ready);
  void AddCompanions(uint16_t ready, kernels::LaunchRequest& launch, Actions& actions);
  static void CountRun(const OpSlot& slot);
  static void EndRun(const OpSlot& slot, Time now);

  // Ending (scheduler.cc).
  void Finish(OpId op, Time now);

  const SchedulerOptions options_;
  policies::DeviceModel device_;  // whose curves are those of what was tuned last
  policies::CostMemo costs_;
  policies::Memo<policies::Work, policies::GemmTimes, 256> gemm_times_;
  policies::Memo<policies::Work, uint16_t, 64> lone_sms_;  // of collectives with nothing beside
  std::unique_ptr<policies::Policy> policy_;
  OpPool pool_;
  std::vector<Queue> queues_;
  std::vector<QueueId> free_queues_;
  std::vector<QueueId> active_, ended_queues_;
  Readiness readiness_;
  std::array<List, kListCount> lists_;
  uint32_t ready_count_ = 0;    // of the lists up to kReadyCollective
  std::vector<OpId> finished_;  // finished in TimelineSeen, released by the next Step
  std::vector<Share> shares_;
  // By class: what a session had been served that was served then, at the most. Who has slept is
  // owed no more than kCreditNs of it.
  std::array<int64_t, policies::kPriorityCount> level_ns_{};
  std::vector<uint32_t> free_shares_;
  absl::flat_hash_map<uint32_t, uint32_t> share_of_session_;
  Ledger ledger_;
  const std::unique_ptr<Races> races_;
  uint64_t admissions_ = 0;
  uint64_t examined_ = 0;
  uint64_t looked_at_ = 0;
  // What is left of this step.
  int examinations_left_ = 0, completions_left_ = 0;
  bool planned_ = false;  // the policy has made a plan since its last Reclaim

  const QueueWindow window_{*this};

  // Scratch of one decision.
  policies::Snapshot snapshot_;
  policies::Plan plan_;
  std::vector<Candidate> candidates_;
  uint64_t decision_ = 0;     // counts them
  bool passes_seen_ = false;  // by the decision
  std::vector<Companion> companions_;
  bool members_expected_ = false;  // runs are held back until these come or a moment has passed
  std::vector<policies::ReadyOp> snapshot_ready_;
  std::vector<policies::RunningOp> snapshot_running_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_SCHEDULER_H_
