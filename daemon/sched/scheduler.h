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
// and the launch action names the lanes it must be ordered behind.
#ifndef CONCERT_DAEMON_SCHED_SCHEDULER_H_
#define CONCERT_DAEMON_SCHED_SCHEDULER_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/config/defaults.h"
#include "daemon/sched/hazards.h"
#include "daemon/sched/lane_clock.h"
#include "daemon/sched/op_pool.h"
#include "daemon/sched/plan_book.h"
#include "daemon/telemetry/records.h"
#include "kernels/failure.h"
#include "policies/cost_memo.h"
#include "policies/plan.h"
#include "policies/policy.h"
#include "policies/snapshot.h"

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
};

// What the dispatcher must do, in order.
struct Action {
  enum class Type : uint8_t {
    kLaunch,    // launch ops on lane, behind the lanes of order_mask, then signal their timelines
    kOffer,     // give the op (a collective's part) to the rendezvous; order its lane behind
                // order_mask first
    kComplete,  // publish the failure of the op if it has one, then store its ticket to its
                // timeline
    kRelease,   // the ops have ended: drop what they hold (buffers, completion slots); their slots
                // are freed after this
  };
  Type type;
  Lane lane;
  policies::Form form;
  uint16_t sm_budget;
  policies::CompanyClass company;
  const policies::GroupSchedule* schedule;  // as PlannedLaunch
  uint16_t order_mask;                      // bit i: lane i
  // As LaunchRequest's, by what the dispatcher has seen finished; weights_settled is found out for
  // groups only.
  bool inputs_settled, weights_settled;
  uint16_t first, count;  // ops [first, first + count) of Actions::ops
};

// Output of Step, in fixed storage.
struct Actions {
  static constexpr size_t kMax = 1024;
  std::vector<Action> list;
  std::vector<OpId> ops;
  std::vector<kernels::Predecessor> after;  // by op: LaunchRequest::after
  Actions() {
    list.reserve(kMax);
    ops.reserve(kMax);
    after.reserve(kMax);
  }
  void Clear() {
    list.clear();
    ops.clear();
    after.clear();
  }
  void AddOp(OpId op, kernels::Predecessor op_after = {}) {
    ops.push_back(op);
    after.push_back(op_after);
  }
  // An action about ops that go to no lane.
  void Add(Action::Type type, std::span<const OpId> its_ops) {
    list.push_back({.type = type,
                    .lane = policies::kNoLane,
                    .form = policies::Form::kSingle,
                    .first = static_cast<uint16_t>(ops.size()),
                    .count = static_cast<uint16_t>(its_ops.size())});
    ops.insert(ops.end(), its_ops.begin(), its_ops.end());
    after.resize(ops.size());
  }
  void Add(Action::Type type, const OpId& op) { Add(type, std::span(&op, 1)); }
  std::span<const OpId> OpsOf(const Action& action) const {
    return {ops.data() + action.first, action.count};
  }
  std::span<const kernels::Predecessor> AfterOf(const Action& action) const {
    return {after.data() + action.first, action.count};
  }
  // How many ops may be added before there is no more room for the largest plan.
  size_t Room() const {
    const size_t used = std::max(list.size(), ops.size()) + policies::kMaxReady;
    return used < kMax ? kMax - used : 0;
  }
  bool HasRoom() const { return Room() > 0; }
};

class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, const policies::DeviceModel& device,
            std::unique_ptr<policies::Policy> policy);

  // --- Events ---

  // Queues of sessions. A removed queue takes no more ops and ends when those it has are finished;
  // `cancel` ends those that have not started. AddQueue returns kNone if the table is full.
  QueueId AddQueue(uint32_t session, policies::Priority priority);
  void RemoveQueue(QueueId queue, bool cancel);

  // A slot for an op that is about to be admitted; kNone when the pool is full. Fill op(),
  // local_waits, watched_waits and, if it was refused, failure; then Submit.
  OpId AllocateOp() { return pool_.Allocate(); }
  // Appends to its queue. Tickets of a queue are consecutive.
  void Submit(OpId op, QueueId queue, Time now);

  // The dispatcher saw the timeline of op.waits[index] reach its value.
  void WaitSatisfied(OpId op, int index);
  // The op can never run. REQUIRES: not launched or offered.
  void Fail(OpId op, const kernels::Failure& failure);
  // Outcome of an offered part: enqueued on the device, or failed.
  void PartLaunched(OpId op, Time now);
  void PartFailed(OpId op, const kernels::Failure& failure);
  // The device refused to launch this op; its timeline is still signalled in order.
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
    book_.ForgetPolicy();
  }

  // As policies::Policy::UseTuned.
  void UseTuned(std::shared_ptr<const policies::TunedTable> tuned) {
    policy_->UseTuned(std::move(tuned));
  }

  // --- The step ---

  // Appends what is to be done now. Call until the events are used up and nothing is appended.
  void Step(Time now, Actions& actions);

  // --- Views ---

  // Queues with launched or offered work: those whose timelines the dispatcher should read.
  // TimelineSeen changes the list.
  std::span<const QueueId> active_queues() const { return active_; }
  // Ticket of the queue's oldest unfinished op. REQUIRES: the queue is active.
  uint64_t OldestTicket(QueueId queue) const { return pool_[queues_[queue].head].op.ticket; }

  OpSlot& slot(OpId op) { return pool_[op]; }
  const OpSlot& slot(OpId op) const { return pool_[op]; }
  // After the op's kRelease action has been carried out.
  void FreeOp(OpId op) { pool_.Free(op); }
  bool idle() const { return pool_.used() == 0; }
  uint32_t unfinished() const { return pool_.used(); }
  int plans_in_flight() const { return book_.compute_plans(); }
  uint32_t ready_count() const { return static_cast<uint32_t>(ready_.size()); }
  // Queues that are not reclaimed.
  uint32_t queue_count() const {
    return static_cast<uint32_t>(queues_.size() - free_queues_.size());
  }
  // True once a removed queue has nothing left; its slot is kept until ReclaimQueue.
  bool QueueEnded(QueueId queue) const { return queues_[queue].ended; }
  void ReclaimQueue(QueueId queue);

  // What ended since the caller last cleared them; to be taken after every step.
  std::vector<OpRecord>& op_records() { return book_.op_records(); }
  std::vector<PlanRecord>& plan_records() { return book_.plan_records(); }

 private:
  enum class ListedAs : uint8_t { kNot, kBlocked, kReady };

  struct Queue {
    bool used = false;
    bool removed = false;
    bool ended = false;
    bool active = false;
    ListedAs listed = ListedAs::kNot;
    policies::Priority priority = policies::Priority::kNormal;
    uint32_t session = 0;
    uint32_t waiters = 0;     // local waits of other ops on this queue
    uint32_t list_index = 0;  // in blocked_ or ready_
    uint32_t active_index = 0;
    OpId head = kNone;           // oldest unfinished
    OpId front = kNone;          // first that is neither launched nor offered
    OpId tail = kNone;           // newest
    OpId last_launched = kNone;  // newest of [head, front)
    uint32_t share = 0;          // index into shares_
    uint64_t submitted = 0, launched = 0, finished = 0;  // tickets
  };

  // What a session has been given lately, for fair sharing.
  struct Share {
    uint32_t queues = 0;  // that refer to it
    int64_t served_ns = 0;
    uint64_t last_plan = 0;  // scratch: counts distinct sessions of a plan
  };

  struct LaneInfo {
    uint32_t in_flight = 0;
    LaneClock clock;
    OpId last_op = kNone;
    uint64_t launches = 0;
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

  // When the launches of a plan are predicted to start and end, beside what runs already.
  struct PredictedSpan {
    Time start = std::numeric_limits<Time>::max();
    Time end = 0;
    Time latency = 0;  // of the first launch, as far as no earlier work hides it
  };

  // Readiness (scheduler.cc).
  bool WaitsMet(OpSlot& slot);
  void CheckTimeouts(OpSlot& slot, Time now);
  void Evaluate(QueueId queue, Time now, Actions& actions);
  void EvaluateBlocked(Time now, Actions& actions);
  void CompleteFront(QueueId queue, Time now, Actions& actions);
  void FailFrom(OpId op, const kernels::Failure& failure);
  void List(QueueId queue, ListedAs as);
  void Unlist(QueueId queue);
  void SetActive(QueueId queue, bool active);
  void ReturnToQueue(QueueId queue, OpId op);
  void ReleaseFinished(Actions& actions);
  void DropWaits(const OpSlot& slot);
  void MaybeEnd(QueueId queue);

  // Deciding (scheduler_decide.cc).
  bool HasRoom(Time now, policies::Priority priority, bool company_expected) const;
  bool CompanyExpected() const;
  void RankCandidates(Time now);
  void ListRunning(Time now);
  bool BuildSnapshot(Time now);
  bool Decide(Time now, Actions& actions);
  float SoloUs(const OpSlot& slot);
  void Apply(Time now, Actions& actions);
  void Launch(Time now, const policies::PlannedLaunch& launch, uint16_t plan, PredictedSpan& span,
              Actions& actions);
  void Offer(Time now, const policies::PlannedLaunch& launch, Actions& actions);
  uint16_t MarkLaunched(OpId op, OpState state, Lane lane, uint16_t launch,
                        const kernels::ByteRange& written, Time now);
  uint32_t Occupy(Time now, const policies::PlannedLaunch& launch, uint16_t order_mask,
                  PredictedSpan& span);
  uint16_t LanesBefore(const OpSlot& slot) const;
  kernels::Predecessor PredecessorOn(const OpSlot& slot, Lane lane) const;
  Lane LaneAfter(const Queue& queue) const;

  // Ending (scheduler.cc).
  void Finish(OpId op, Time now);
  void Withdraw(OpSlot& slot);

  const SchedulerOptions options_;
  const policies::DeviceModel device_;
  policies::CostMemo costs_;
  std::unique_ptr<policies::Policy> policy_;
  OpPool pool_;
  std::vector<Queue> queues_;
  std::vector<QueueId> free_queues_;
  std::vector<QueueId> active_, blocked_, ready_;
  std::vector<OpId> finished_;  // finished in TimelineSeen, released by the next Step
  std::vector<Share> shares_;
  std::vector<uint32_t> free_shares_;
  absl::flat_hash_map<uint32_t, uint32_t> share_of_session_;
  std::array<LaneInfo, policies::kLaneCount> lanes_;
  PlanBook book_;
  WritesInFlight writes_;
  uint64_t admissions_ = 0;
  bool progressed_ =
      false;  // something was launched, finished, satisfied or failed since blocked_ was scanned
  Time next_timeout_scan_ = 0;

  // Scratch of one decision.
  policies::Snapshot snapshot_;
  policies::Plan plan_;
  std::vector<Candidate> candidates_;
  std::vector<policies::ReadyOp> snapshot_ready_;
  std::vector<policies::RunningOp> snapshot_running_;
  std::vector<kernels::OpRanges> launch_ranges_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_SCHEDULER_H_
