// The half of the scheduler that makes snapshots, asks the policy and turns its plan into actions.
#include <algorithm>
#include <limits>
#include <optional>

#include "daemon/check.h"
#include "daemon/sched/scheduler.h"
#include "kernels/comm/messages.h"
#include "kernels/group/plan/work_list.h"

namespace concert::daemon {
namespace {

using policies::Form;
using policies::PlannedLaunch;
using policies::ReadyOp;
using policies::RunsOn;

// Sessions whose service differs by less count as equally served, so that the same ops come in the
// same order again and again, and with them known plans: costs that differ by a fraction of a
// microsecond must not decide. The price: a session may be this much further ahead of another than
// with an exact comparison.
constexpr int64_t kFairnessQuantumNs = 50'000;

// By how much of itself what runs may be over earlier than predicted. Waiting for more saves a
// launch's start and end, a few microseconds: of a launch that takes longer than kLongNs that is
// less than a late successor costs, and a quarter of what is beyond covers predictions that are a
// sixth too long together with SchedulerOptions::backlog_ns.
constexpr Time kLongNs = 100'000;
constexpr Time MarginNs(Time running_ns, bool more_expected) {
  return more_expected ? std::max<Time>(0, running_ns - kLongNs) / 4 : running_ns / 2;
}

// Ops looked at for what may run beside a collective: some 5 us.
constexpr int kMaxBeside = 256;

}  // namespace

// Late binding: see SchedulerOptions.
bool Scheduler::HasRoom(Time now, policies::Priority priority, bool more_expected) const {
  const PlanBook& plans = ledger_.plans();
  if (plans.compute_plans() >= PlanBook::kMaxComputePlans) return false;
  if (plans.group_launches() >= kernels::kMaxGroupLaunches) return false;
  if (plans.compute_plans(priority) < options_.depth) return true;
  // Predictions err by some part of themselves, and a launch that comes too late cannot overlap the
  // end of the one before: 64x4096x4096 x4 then takes 39 us instead of 35.
  const Ledger::Backlog backlog = ledger_.BacklogOf(priority, now);
  return backlog.ns < options_.backlog_ns + MarginNs(backlog.running_ns, more_expected);
}

// Less is ready than what is in flight was launched with, and that is what its ends will bring:
// then a larger co-run set is worth more than being early. DLRM's towers go out as two batches and
// two, 19.3 us each, instead of as one, one and two, 21.1 (one H200). An op that follows one in
// flight is of a chain, whose ends bring nothing: its next op is ready already.
bool Scheduler::MoreExpected() const {
  if (static_cast<int>(ready_count_) >= ledger_.plans().compute_ops()) return false;
  for (uint8_t list = 0; list <= kReadyCollective; ++list) {
    for (QueueId id = lists_[list].first; id != kNone; id = queues_[id].next) {
      if (queues_[id].head != queues_[id].front) return false;
    }
  }
  return true;
}

// The lane on which the queue's next op would follow its predecessor with nothing in between.
Lane Scheduler::LaneAfter(const Queue& queue) const {
  return queue.last_launched == kNone ? policies::kNoLane : ledger_.LaneBehind(queue.last_launched);
}

uint8_t Scheduler::ReadyList(policies::Priority priority, const policies::Work& work) {
  const size_t of_class = policies::IndexOf(priority);
  return static_cast<uint8_t>(work.steps == 1 ? of_class : kReadyOfManySteps + of_class);
}

// Appends what is on the list, oldest first, as far as there is room: the rest has its turn when
// those before it are launched.
void Scheduler::AddCandidates(uint8_t list, int limit) {
  int looks_left = kMaxCandidatesOfList;  // joining a pass needs no room, but takes time
  for (QueueId id = lists_[list].first; id != kNone && looks_left > 0; id = queues_[id].next) {
    --looks_left;
    ++looked_at_;
    const Queue& queue = queues_[id];
    OpSlot& slot = pool_[queue.front];
    if (!JoinsPass(queue, slot) && limit-- <= 0) return;
    candidates_.push_back({.priority = static_cast<int8_t>(queue.priority),
                           .ahead = ServedNs(queue),
                           .ready_at = slot.ready_at,
                           .admission = slot.admission,
                           .op = queue.front});
  }
}

// Fills candidates_ with what is ready and sorts it: highest priority first, then the session that
// has had least, then the op that has waited longest, then the one admitted first.
void Scheduler::RankCandidates(Time now) {
  candidates_.clear();
  ++decision_;
  passes_seen_ = false;
  const bool more_expected = MoreExpected();
  for (uint8_t list = kReadyOfManySteps; list-- > 0;) {
    const auto of_many_steps = static_cast<uint8_t>(kReadyOfManySteps + list);
    if (lists_[list].first == kNone && lists_[of_many_steps].first == kNone) continue;
    const auto priority = static_cast<policies::Priority>(list - 1);
    if (HasRoom(now, priority, more_expected)) {
      AddCandidates(list, kMaxCandidatesOfList);
      AddCandidates(of_many_steps, kMaxCandidatesOfList);
    } else if (ledger_.plans().compute_plans() < PlanBook::kMaxComputePlans) {
      // What has many steps, as a program, waits for no company: it is a launch of its own, and
      // beside others it fills what each of its steps leaves.
      AddCandidates(of_many_steps, ledger_.IdleLanes(priority));
    }
  }
  AddCandidates(
      kReadyCollective,
      std::min(kMaxCandidatesOfList, PlanBook::kMaxCollectives - ledger_.plans().collectives()));
  HoldBackForPasses(now);
  std::array<int64_t, policies::kPriorityCount> least_served;
  least_served.fill(std::numeric_limits<int64_t>::max());
  const auto least_of = [&](int8_t priority) -> int64_t& { return least_served[priority + 1]; };
  for (const Candidate& candidate : candidates_) {
    least_of(candidate.priority) = std::min(least_of(candidate.priority), candidate.ahead);
  }
  for (Candidate& candidate : candidates_) {
    candidate.ahead = (candidate.ahead - least_of(candidate.priority)) / kFairnessQuantumNs;
  }
  // The lists are in order of time, so the whole nearly always is.
  if (std::is_sorted(candidates_.begin(), candidates_.end())) return;
  if (candidates_.size() <= policies::kMaxReady) {
    std::sort(candidates_.begin(), candidates_.end());
  } else {
    std::partial_sort(candidates_.begin(), candidates_.begin() + policies::kMaxReady,
                      candidates_.end());
  }
}

policies::Beside Scheduler::GemmsBeside(Time now) {
  const float launched_us =
      static_cast<float>(ledger_.BacklogOf(policies::Priority::kLow, now).ns) * 1e-3f;
  policies::Beside beside = {.us = launched_us, .longest_us = launched_us};
  int left = kMaxBeside;
  for (uint8_t list = 0; list < kReadyCollective; ++list) {
    for (QueueId id = lists_[list].first; id != kNone; id = queues_[id].next) {
      for (OpId op = queues_[id].front; op != kNone; op = pool_[op].next) {
        if (left-- == 0) return beside;
        ++looked_at_;
        const OpSlot& slot = pool_[op];
        if (slot.op.work.runs_on != RunsOn::kSms) break;
        beside.Add(gemm_times_.Of(slot.op.work, slot.work_hash,
                                  [&] { return policies::GemmTimesOf(device_, slot.op.work); }));
      }
    }
  }
  return beside;
}

uint16_t Scheduler::ExpectedSms(const OpSlot& slot, const policies::Beside& beside) {
  const policies::Work& work = slot.op.work;
  if (work.link_bytes + work.hbm_bytes == 0) return 0;  // a barrier
  const uint64_t block_bytes = kernels::BlockBytes(slot.op, work.ranks);
  const auto choose = [&] {
    return policies::ChooseTransport(device_, work, block_bytes, beside).sms;
  };
  return beside.us > 0 ? choose() : lone_sms_.Of(work, slot.work_hash, choose);
}

void Scheduler::ListRunning(Time now) {
  snapshot_running_.clear();
  // By lane, on each of which collectives follow one another.
  std::array<int, policies::kLaneCount - policies::kCollectiveLane> reserved{};
  for (const QueueId id : active_) {
    const Queue& queue = queues_[id];
    for (OpId op = queue.head; op != queue.front; op = pool_[op].next) {
      if (snapshot_running_.size() == snapshot_running_.capacity()) break;
      const OpSlot& slot = pool_[op];
      if (slot.state != OpState::kLaunched) continue;
      snapshot_running_.push_back({.session = queue.session,
                                   .lane = slot.flight.lane,
                                   .launched_at = slot.flight.launched_at,
                                   .expected_end = ledger_.EndOf(slot, now),
                                   .work = slot.op.work,
                                   .priority = queue.priority,
                                   .reserved_sms = slot.flight.reserved_sms});
      if (policies::IsCollectiveLane(slot.flight.lane)) {
        int& most = reserved[slot.flight.lane - policies::kCollectiveLane];
        most = std::max<int>(most, slot.flight.reserved_sms);
      }
    }
  }
  snapshot_.reserved_sms = reserved[0] + reserved[1];
}

// Whether the op depends on anything that has not ended but what is before it in its queue.
bool Scheduler::WaitsElsewhere(const OpSlot& slot) const {
  if (slot.watched_waits != 0) return true;
  for (const OpSlot::LocalWait& wait : slot.local_waits) {
    const bool before_it =
        wait.queue == slot.queue && wait.value < slot.op.ticket - slot.op.covered;
    if (!before_it && queues_[wait.queue].finished < wait.value) return true;
  }
  return false;
}

bool Scheduler::QueueWindow::Follower(uint32_t op, policies::QueuedOp& follower) const {
  const OpId next = scheduler_.pool_[op].next;
  if (next == kNone) return false;
  const OpSlot& slot = scheduler_.pool_[next];
  if (!slot.may_launch) return false;
  follower = {
      .op = next, .work = &slot.op.work, .waits_elsewhere = scheduler_.WaitsElsewhere(slot)};
  return true;
}

bool Scheduler::BuildSnapshot(Time now) {
  RankCandidates(now);
  if (candidates_.empty()) return false;
  snapshot_ready_.clear();
  companions_.clear();
  std::optional<policies::Beside> beside;  // found out where there is a collective
  const size_t count = std::min<size_t>(candidates_.size(), policies::kMaxReady);
  for (size_t i = 0; i < count; ++i) {
    const OpSlot& slot = pool_[candidates_[i].op];
    const Queue& queue = queues_[slot.queue];
    if (GoesWithAnother(candidates_[i].op)) continue;
    snapshot_ready_.push_back({.op = candidates_[i].op,
                               .session = queue.session,
                               .priority = queue.priority,
                               .after = LaneAfter(queue),
                               .ready_at = slot.ready_at,
                               .deadline = static_cast<Time>(slot.op.deadline_ns),
                               .work = slot.op.work,
                               .work_hash = slot.work_hash});
    if (slot.op.work.runs_on != RunsOn::kLinks) continue;
    if (!beside) beside = GemmsBeside(now);
    snapshot_ready_.back().sms = ExpectedSms(slot, *beside);
  }
  SumUpPasses();
  for (int lane = 0; lane < policies::kLaneCount; ++lane) {
    snapshot_.lanes[lane] = ledger_.StateOf(static_cast<Lane>(lane), now);
  }
  ListRunning(now);
  snapshot_.now = now;
  snapshot_.ready = snapshot_ready_;
  snapshot_.running = snapshot_running_;
  snapshot_.waiting = ledger_.waiting();
  return true;
}

bool Scheduler::Decide(Time now, Actions& actions) {
  if (!BuildSnapshot(now)) return false;
  plan_.Clear();
  policy_->Decide(snapshot_, plan_);
  planned_ = true;
  if (plan_.empty()) return false;
  Apply(now, actions);
  return true;
}

void Scheduler::Apply(Time now, Actions& actions) {
  std::optional<Ledger::OpenPlan> open;
  policies::Priority lowest = policies::Priority::kHigh;
  for (uint16_t i = 0; i < plan_.op_count; ++i) {
    lowest = std::min(lowest, snapshot_.ready[plan_.ops[i]].priority);
  }
  for (const PlannedLaunch& launch : plan_.launch_span()) {
    CONCERT_CHECK(launch.count > 0 && launch.lane < policies::kLaneCount);
    const ReadyOp& first = snapshot_.ready[plan_.ops[launch.first]];
    if (first.work.runs_on == RunsOn::kLinks) {
      CONCERT_CHECK(launch.count == 1 && policies::IsCollectiveLane(launch.lane));
      Offer(now, launch, actions);
      continue;
    }
    CONCERT_CHECK(!policies::IsCollectiveLane(launch.lane));
    // What is left stays ready.
    if (launch.form == Form::kGroup &&
        ledger_.plans().group_launches() == kernels::kMaxGroupLaunches) {
      break;
    }
    if (!open.has_value()) open = ledger_.Open(plan_, lowest, now);
    Launch(now, launch, *open, actions);
  }
  if (open.has_value()) ledger_.Close(plan_, *open);
}

// Whether it takes part in chains: a group, or a launch of the row kernel.
bool Scheduler::IsChained(const PlannedLaunch& launch) const {
  const std::span<const uint16_t> ops = plan_.OpsOf(launch);
  return launch.form == Form::kGroup || std::all_of(ops.begin(), ops.end(), [&](uint16_t index) {
           return snapshot_.ready[index].work.carrier == policies::Carrier::kRows;
         });
}

void Scheduler::Launch(Time now, const PlannedLaunch& planned, Ledger::OpenPlan& plan,
                       Actions& actions) {
  const bool chained = IsChained(planned);
  kernels::LaunchRequest& launch = actions.AddLaunch(planned);
  launch.reason = plan_.reason;
  launch.inputs_ready = true;
  for (const uint16_t index : plan_.OpsOf(planned)) {
    const OpId op = snapshot_.ready[index].op;
    const kernels::Predecessor after =
        chained ? PredecessorOn(pool_[op], planned.lane) : kernels::Predecessor{};
    const uint16_t mask = TakeFromQueue(op, OpState::kLaunched, ShareUs(index));
    launch.order_mask |= mask;
    launch.inputs_ready &= mask == 0 || after.launches_back > 0;
    actions.AddOp(op, after);
  }
  if (planned.count == 1) AddCompanions(plan_.OpsOf(planned)[0], launch, actions);
  launch.order_mask &= static_cast<uint16_t>(~(1u << planned.lane));
  const std::span<const OpId> ops = actions.OpsOf(launch);
  ledger_.Launch(launch, ops, chained, plan, now);
  for (const OpId op : ops) {
    const OpSlot& slot = pool_[op];
    CountSession(slot);
    CountRun(slot);
    SetActive(slot.queue, true);
    Advance(slot.queue, slot.op.ticket);
  }
}

void Scheduler::Offer(Time now, const PlannedLaunch& planned, Actions& actions) {
  const ReadyOp& part = snapshot_.ready[plan_.ops[planned.first]];
  kernels::LaunchRequest& launch = actions.AddLaunch(planned);
  actions.AddOp(part.op);
  launch.order_mask = TakeFromQueue(part.op, OpState::kOffered, ShareUs(plan_.ops[planned.first]));
  launch.order_mask &= static_cast<uint16_t>(~(1u << planned.lane));
  ledger_.Offer(part.op, planned.lane, part.sms, now);
}

// Moves the op from the front of its queue to those that are launched or offered. Returns the lanes
// of what it depends on that is unfinished.
uint16_t Scheduler::TakeFromQueue(OpId op, OpState state, float solo_us) {
  OpSlot& slot = pool_[op];
  Queue& queue = queues_[slot.queue];
  CONCERT_CHECK(slot.state == OpState::kReady && queue.front == op);
  const uint16_t mask = LanesBefore(slot);
  slot.state = state;
  slot.solo_us = solo_us;
  CountService(queue, static_cast<int64_t>(slot.solo_us * 1e3f));
  queue.last_launched = op;
  queue.front = slot.next;
  TakeOff(slot.queue);
  if (queue.front != kNone) readiness_.Touch(slot.queue);
  return mask;
}

// Of the plan of a launched op: once, however many of its session's are in it.
void Scheduler::CountSession(const OpSlot& slot) {
  Share& share = shares_[queues_[slot.queue].share];
  const uint64_t plan = ledger_.plans().PlanNumber(slot.flight.launch);
  if (share.last_plan == plan) return;
  share.last_plan = plan;
  ledger_.plans().AddSession(slot.flight.launch);
}

// Where in one of the last launches on `lane` the op before `slot` in its queue is, if that is all
// that the op still depends on.
kernels::Predecessor Scheduler::PredecessorOn(const OpSlot& slot, Lane lane) const {
  const OpId before = queues_[slot.queue].last_launched;
  if (before == kNone || pool_[before].state != OpState::kLaunched) return {};
  for (const OpSlot::LocalWait& wait : slot.local_waits) {
    if (queues_[wait.queue].finished < wait.value) return {};
  }
  return ledger_.PredecessorOn(lane, before);
}

// Lanes of the unfinished ops that `slot` depends on: its predecessor in the queue and its waits.
// An op is unfinished until the dispatcher has seen its timeline.
uint16_t Scheduler::LanesBefore(const OpSlot& slot) const {
  uint16_t mask = 0;
  VisitUnfinishedBefore(
      slot, [&](const OpSlot& before) { mask |= static_cast<uint16_t>(1u << before.flight.lane); });
  return mask;
}

}  // namespace concert::daemon
