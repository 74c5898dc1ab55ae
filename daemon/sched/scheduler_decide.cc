// The half of the scheduler that makes snapshots, asks the policy and turns its plan into actions.
#include <algorithm>
#include <bit>

#include "daemon/check.h"
#include "daemon/sched/scheduler.h"
#include "kernels/group/plan/work_list.h"
#include "kernels/op_table.h"

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

// Ready ops of a list that a decision ranks: more than a snapshot holds, so that the least served
// of many come first. Ranking them takes some 10 us.
constexpr int kMaxCandidatesOfList = 2 * policies::kMaxReady;

// By how much of itself what runs may be over earlier than predicted. Waiting for company saves a
// launch's start and end, a few microseconds: of a launch that takes longer than kLongNs that is
// less than a late successor costs, and a quarter of what is beyond covers predictions that are a
// sixth too long together with SchedulerOptions::backlog_ns.
constexpr Time kLongNs = 100'000;
constexpr Time MarginNs(Time running_ns, bool company_expected) {
  return company_expected ? std::max<Time>(0, running_ns - kLongNs) / 4 : running_ns / 2;
}

}  // namespace

// Late binding: see SchedulerOptions.
bool Scheduler::HasRoom(Time now, policies::Priority priority, bool company_expected) const {
  const bool high = priority == policies::Priority::kHigh;
  if (book_.compute_plans() >= PlanBook::kMaxComputePlans) return false;
  if (book_.group_launches() >= kernels::kMaxGroupLaunches) return false;
  if (book_.compute_plans(priority) < options_.depth) return true;
  Time busy_until = now, running_ns = 0;
  for (Lane lane = high ? policies::kFirstHighLane : Lane{0}; lane < policies::kCollectiveLane;
       ++lane) {
    busy_until = std::max(busy_until, lanes_[lane].clock.BusyUntil(now));
    running_ns = std::max(running_ns, lanes_[lane].clock.running_ns());
  }
  // Predictions err by some part of themselves, and a launch that comes too late cannot overlap the
  // end of the one before: 64x4096x4096 x4 then takes 39 us instead of 35.
  return busy_until - now < options_.backlog_ns + MarginNs(running_ns, company_expected);
}

// Less is ready than what is in flight was launched with, and that is what its ends will bring:
// then company is worth more than being early. DLRM's towers go out as two batches and two, 19.3 us
// each, instead of as one, one and two, 21.1 (one H200). An op that follows one in flight is of a
// chain, whose ends bring nothing: its next op is ready already.
bool Scheduler::CompanyExpected() const {
  if (static_cast<int>(ready_count_) >= book_.compute_ops()) return false;
  for (uint8_t list = 0; list <= kReadyCollective; ++list) {
    for (QueueId id = lists_[list].first; id != kNone; id = queues_[id].next) {
      if (queues_[id].head != queues_[id].front) return false;
    }
  }
  return true;
}

// The lane on which the queue's next op would follow its predecessor with nothing in between.
// Collective lanes are never shared with other work.
Lane Scheduler::LaneAfter(const Queue& queue) const {
  if (queue.last_launched == kNone) return policies::kNoLane;
  const OpSlot& previous = pool_[queue.last_launched];
  if (policies::IsCollectiveLane(previous.lane)) return policies::kNoLane;
  return lanes_[previous.lane].last_op == queue.last_launched ? previous.lane : policies::kNoLane;
}

// Appends what is on the list, oldest first, as far as there is room: the rest has its turn when
// those before it are launched.
void Scheduler::AddCandidates(uint8_t list, int limit) {
  for (QueueId id = lists_[list].first; id != kNone; id = queues_[id].next) {
    if (limit-- <= 0) return;
    const Queue& queue = queues_[id];
    const OpSlot& slot = pool_[queue.front];
    candidates_.push_back({.priority = static_cast<int8_t>(queue.priority),
                           .ahead = shares_[queue.share].served_ns,
                           .ready_at = slot.ready_at,
                           .admission = slot.admission,
                           .op = queue.front});
  }
}

// Fills candidates_ with what is ready and sorts it: highest priority first, then the session that
// has had least, then the op that has waited longest, then the one admitted first.
void Scheduler::RankCandidates(Time now) {
  candidates_.clear();
  const bool company_expected = CompanyExpected();
  for (int list = policies::kPriorityCount - 1; list >= 0; --list) {
    if (lists_[list].first == kNone) continue;
    if (!HasRoom(now, static_cast<policies::Priority>(list - 1), company_expected)) continue;
    AddCandidates(static_cast<uint8_t>(list), kMaxCandidatesOfList);
  }
  AddCandidates(kReadyCollective,
                std::min(kMaxCandidatesOfList, PlanBook::kMaxCollectives - book_.collectives()));
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

void Scheduler::ListRunning(Time now) {
  snapshot_running_.clear();
  for (const QueueId id : active_) {
    const Queue& queue = queues_[id];
    for (OpId op = queue.head; op != queue.front; op = pool_[op].next) {
      if (snapshot_running_.size() == snapshot_running_.capacity()) return;
      const OpSlot& slot = pool_[op];
      if (slot.state != OpState::kLaunched) continue;
      snapshot_running_.push_back(
          {.session = queue.session,
           .lane = slot.lane,
           .launched_at = slot.launched_at,
           .expected_end = lanes_[slot.lane].clock.EndOf(slot.clock_launch, now),
           .work = slot.op.work,
           .priority = queue.priority});
    }
  }
}

bool Scheduler::BuildSnapshot(Time now) {
  RankCandidates(now);
  if (candidates_.empty()) return false;
  snapshot_ready_.clear();
  const size_t count = std::min<size_t>(candidates_.size(), policies::kMaxReady);
  for (size_t i = 0; i < count; ++i) {
    const OpSlot& slot = pool_[candidates_[i].op];
    const Queue& queue = queues_[slot.queue];
    snapshot_ready_.push_back({.op = candidates_[i].op,
                               .session = queue.session,
                               .priority = queue.priority,
                               .after = LaneAfter(queue),
                               .ready_at = slot.ready_at,
                               .deadline = static_cast<Time>(slot.op.deadline_ns),
                               .session_served_ns = shares_[queue.share].served_ns,
                               .work = slot.op.work,
                               .work_hash = slot.work_hash});
  }
  for (int lane = 0; lane < policies::kLaneCount; ++lane) {
    snapshot_.lanes[lane] = {.in_flight = lanes_[lane].in_flight,
                             .busy_until = lanes_[lane].clock.BusyUntil(now)};
  }
  ListRunning(now);
  snapshot_.now = now;
  snapshot_.idle_ns = now - book_.IdleSince(now);
  snapshot_.ready = snapshot_ready_;
  snapshot_.running = snapshot_running_;
  return true;
}

bool Scheduler::Decide(Time now, Actions& actions) {
  if (!BuildSnapshot(now)) return false;
  plan_.Clear();
  policy_->Decide(snapshot_, plan_);
  if (plan_.empty()) return false;
  Apply(now, actions);
  return true;
}

void Scheduler::Apply(Time now, Actions& actions) {
  uint16_t plan = 0;
  PredictedSpan span;
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
    if (launch.form == Form::kGroup && book_.group_launches() == kernels::kMaxGroupLaunches) break;
    if (span.end == 0) plan = book_.OpenPlan(plan_, lowest, now);
    Launch(now, launch, plan, span, actions);
  }
  if (span.end == 0) return;
  const float latency_us = static_cast<float>(span.latency) * 1e-3f;
  const float span_us = static_cast<float>(span.end - span.start) * 1e-3f;
  const float policy_us = plan_.predicted_us + latency_us;
  const float predicted_us = std::max(policy_us, span_us);
  // One after the other they would have waited for the same.
  book_.SetPrediction(plan, policy_us, predicted_us,
                      plan_.serial_us + predicted_us - plan_.predicted_us);
}

float Scheduler::SoloUs(const OpSlot& slot) {
  return static_cast<float>(costs_.Of(slot.op.work, slot.work_hash).solo_us);
}

// Whether it takes part in chains: a group, or ops that do so by themselves.
bool Scheduler::IsChained(const PlannedLaunch& launch) const {
  const std::span<const uint16_t> ops = plan_.OpsOf(launch);
  return launch.form == Form::kGroup || std::all_of(ops.begin(), ops.end(), [&](uint16_t index) {
           return snapshot_.ready[index].work.is_rows();
         });
}

void Scheduler::Launch(Time now, const PlannedLaunch& launch, uint16_t plan, PredictedSpan& span,
                       Actions& actions) {
  launch_ranges_.Clear();
  for (const uint16_t index : plan_.OpsOf(launch)) {
    launch_ranges_.Add(kernels::AccessesOf(pool_[snapshot_.ready[index].op].op));
  }
  const bool chained = IsChained(launch);
  Action action{.type = Action::Type::kLaunch,
                .lane = launch.lane,
                .first = static_cast<uint16_t>(actions.ops.size()),
                .count = launch.count};
  const uint16_t id = book_.OpenLaunch(plan, launch, now);
  action.launch = {.form = launch.form,
                   .sm_budget = launch.sm_budget,
                   .company = launch.company,
                   .work_list = kernels::GroupWorkList::Of(launch.work_list),
                   .inputs_ready = true,
                   .weights_ready = chained && WeightsSettled(writes_, launch_ranges_),
                   .plan = book_.PlanNumber(id),
                   .reason = plan_.reason};
  for (uint16_t i = 0; i < launch.count; ++i) {
    const OpId op = snapshot_.ready[plan_.OpsOf(launch)[i]].op;
    OpSlot& slot = pool_[op];
    const kernels::Predecessor after =
        chained ? PredecessorOn(slot, launch.lane) : kernels::Predecessor{};
    slot.index_in_launch = i;
    slot.lane_launch = lanes_[launch.lane].launches + 1;
    slot.launch = id;
    slot.writes = writes_.Add(launch_ranges_.written(i));
    const uint16_t mask = TakeFromQueue(op, OpState::kLaunched, launch.lane, now);
    EnterBooks(slot);
    action.order_mask |= mask;
    action.launch.inputs_ready &= mask == 0 || after.launches_back > 0;
    actions.AddOp(op, after);
  }
  ++lanes_[launch.lane].launches;
  action.order_mask &= static_cast<uint16_t>(~(1u << launch.lane));
  const uint32_t clock_launch = Occupy(now, launch, action.order_mask, span);
  for (const uint16_t index : plan_.OpsOf(launch)) {
    pool_[snapshot_.ready[index].op].clock_launch = clock_launch;
  }
  actions.list.push_back(action);
}

// Predicts when the launch runs: behind what its lane and the lanes of `order_mask` have. Returns
// what names it in the lane's clock.
uint32_t Scheduler::Occupy(Time now, const PlannedLaunch& launch, uint16_t order_mask,
                           PredictedSpan& span) {
  LaneClock& clock = lanes_[launch.lane].clock;
  const Time free_at = std::max(clock.BusyUntil(now), now);
  const double launch_us = device_.launch_us + device_.launch_op_us * launch.count;
  Time start = std::max(free_at, now + static_cast<Time>(launch_us * 1e3));
  if (free_at < span.start) {
    span.start = free_at;
    span.latency = start - free_at;
  }
  for (uint16_t mask = order_mask; mask != 0; mask &= static_cast<uint16_t>(mask - 1)) {
    start = std::max(start, lanes_[std::countr_zero(mask)].clock.BusyUntil(now));
  }
  const Time end = start + static_cast<Time>(launch.predicted_us * 1e3f);
  span.end = std::max(span.end, end);
  return clock.Launched(now, end, launch.count);
}

void Scheduler::Offer(Time now, const PlannedLaunch& launch, Actions& actions) {
  const OpId op = snapshot_.ready[plan_.ops[launch.first]].op;
  // It enters the books when all ranks' parts are there: until then it takes nothing that others
  // need.
  const uint16_t mask = TakeFromQueue(op, OpState::kOffered, launch.lane, now);
  actions.list.push_back({.type = Action::Type::kOffer,
                          .lane = launch.lane,
                          .order_mask = static_cast<uint16_t>(mask & ~(1u << launch.lane)),
                          .first = static_cast<uint16_t>(actions.ops.size()),
                          .count = 1});
  actions.AddOp(op);
}

// Moves the op from the front of its queue to its lane. Returns the lanes of what it depends on
// that is unfinished, its own among them.
uint16_t Scheduler::TakeFromQueue(OpId op, OpState state, Lane lane, Time now) {
  OpSlot& slot = pool_[op];
  Queue& queue = queues_[slot.queue];
  CONCERT_CHECK(slot.state == OpState::kReady && queue.front == op);
  const uint16_t mask = LanesBefore(slot);
  slot.state = state;
  slot.lane = lane;
  slot.solo_us = SoloUs(slot);
  slot.launched_at = now;
  shares_[queue.share].served_ns += static_cast<int64_t>(slot.solo_us * 1e3f);
  queue.last_launched = op;
  queue.front = slot.next;
  TakeOff(slot.queue);
  if (queue.front != kNone) readiness_.Touch(slot.queue);
  return mask;
}

// The op is enqueued on its lane.
void Scheduler::EnterBooks(const OpSlot& slot) {
  const OpId op = queues_[slot.queue].last_launched;
  book_.Add(slot);
  Share& share = shares_[queues_[slot.queue].share];
  if (share.last_plan != book_.PlanNumber(slot.launch)) {
    share.last_plan = book_.PlanNumber(slot.launch);
    book_.AddSession(slot.launch);
  }
  SetActive(slot.queue, true);
  ++lanes_[slot.lane].in_flight;
  lanes_[slot.lane].last_op = op;
  Advance(slot.queue, slot.op.ticket);
}

// Where in one of the last launches on `lane` the op before `slot` in its queue is, if that is all
// that the op still depends on.
kernels::Predecessor Scheduler::PredecessorOn(const OpSlot& slot, Lane lane) const {
  const OpId before = queues_[slot.queue].last_launched;
  if (before == kNone) return {};
  const OpSlot& previous = pool_[before];
  if (previous.state != OpState::kLaunched || previous.lane != lane) return {};
  const uint64_t back = lanes_[lane].launches + 1 - previous.lane_launch;
  if (back > kernels::kMaxGroupPredecessors) return {};
  for (int i = 0; i < slot.local_wait_count; ++i) {
    if (queues_[slot.local_waits[i].queue].finished < slot.local_waits[i].value) return {};
  }
  return {.launches_back = static_cast<uint16_t>(back), .op = previous.index_in_launch};
}

// Lanes of the unfinished ops that `slot` depends on: its predecessor in the queue and its waits.
// An op is unfinished until the dispatcher has seen its timeline.
uint16_t Scheduler::LanesBefore(const OpSlot& slot) const {
  uint16_t mask = 0;
  const Queue& queue = queues_[slot.queue];
  if (queue.last_launched != kNone)
    mask |= static_cast<uint16_t>(1u << pool_[queue.last_launched].lane);
  for (int i = 0; i < slot.local_wait_count; ++i) {
    const Queue& other = queues_[slot.local_waits[i].queue];
    const uint64_t value = slot.local_waits[i].value;
    if (other.finished >= value) continue;
    // The awaited op stands for all before it: each was ordered behind the one before.
    for (OpId op = other.head; op != other.front; op = pool_[op].next) {
      if (pool_[op].op.ticket != value) continue;
      mask |= static_cast<uint16_t>(1u << pool_[op].lane);
      break;
    }
  }
  return mask;
}

}  // namespace concert::daemon
