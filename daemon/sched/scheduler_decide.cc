// The half of the scheduler that makes snapshots, asks the policy and turns its plan into actions.
#include <algorithm>

#include "daemon/check.h"
#include "daemon/sched/scheduler.h"

namespace concert::daemon {
namespace {

using policies::Category;
using policies::Form;
using policies::PlannedLaunch;
using policies::ReadyOp;

// Highest priority first, then the session that has had least, then the op that has waited longest.
bool Before(const ReadyOp& a, const ReadyOp& b) {
  if (a.priority != b.priority) return a.priority > b.priority;
  if (a.session_served_ns != b.session_served_ns) return a.session_served_ns < b.session_served_ns;
  if (a.ready_at != b.ready_at) return a.ready_at < b.ready_at;
  return a.op < b.op;
}

}  // namespace

// Late binding: see SchedulerOptions.
bool Scheduler::HasRoom(Time now) const {
  if (plans_in_flight_ < options_.depth) return true;
  if (plans_in_flight_ >= kMaxComputePlans) return false;
  Time busy_until = now;
  for (Lane lane = 0; lane < policies::kCollectiveLane; ++lane) {
    busy_until = std::max(busy_until, lanes_[lane].busy_until);
  }
  return busy_until - now < options_.backlog_ns;
}

// The lane on which the queue's next op would follow its predecessor with nothing in between.
// Collective lanes are never shared with other work.
Lane Scheduler::LaneAfter(const Queue& queue) const {
  if (queue.last_launched == kNone) return policies::kNoLane;
  const OpSlot& previous = pool_[queue.last_launched];
  if (policies::IsCollectiveLane(previous.lane)) return policies::kNoLane;
  return lanes_[previous.lane].last_op == queue.last_launched ? previous.lane : policies::kNoLane;
}

bool Scheduler::BuildSnapshot(Time now, bool collectives_only) {
  candidates_.clear();
  int offers_left = kMaxCollectives - collectives_in_flight_;
  for (const QueueId id : ready_) {
    const Queue& queue = queues_[id];
    const OpSlot& slot = pool_[queue.front];
    const bool collective = slot.op.work.category == Category::kCollective;
    if (collective ? offers_left-- <= 0 : collectives_only) continue;
    candidates_.push_back({.op = queue.front,
                           .session = queue.session,
                           .priority = queue.priority,
                           .after = LaneAfter(queue),
                           .ready_at = slot.ready_at,
                           .deadline = static_cast<Time>(slot.op.deadline_ns),
                           .session_served_ns = shares_[queue.share].served_ns,
                           .work = slot.op.work});
    if (candidates_.size() == candidates_.capacity())
      break;  // the rest has its turn in the next step
  }
  if (candidates_.empty()) return false;
  const size_t count = std::min<size_t>(candidates_.size(), policies::kMaxReady);
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(count),
                    candidates_.end(), Before);
  snapshot_running_.clear();
  for (const QueueId id : active_) {
    const Queue& queue = queues_[id];
    for (OpId op = queue.head; op != queue.front; op = pool_[op].next) {
      if (snapshot_running_.size() == snapshot_running_.capacity()) break;
      const OpSlot& slot = pool_[op];
      if (slot.state != OpState::kLaunched) continue;
      snapshot_running_.push_back({.session = queue.session,
                                   .lane = slot.lane,
                                   .launched_at = slot.launched_at,
                                   .expected_end = lanes_[slot.lane].busy_until,
                                   .work = slot.op.work,
                                   .priority = queue.priority});
    }
  }
  snapshot_.now = now;
  snapshot_.ready = {candidates_.data(), count};
  snapshot_.running = snapshot_running_;
  for (int lane = 0; lane < policies::kLaneCount; ++lane) {
    snapshot_.lanes[lane] = {.in_flight = lanes_[lane].in_flight,
                             .busy_until = lanes_[lane].busy_until};
  }
  return true;
}

bool Scheduler::Decide(Time now, bool collectives_only, Actions& actions) {
  if (!BuildSnapshot(now, collectives_only)) return false;
  plan_.Clear();
  policy_->Decide(snapshot_, plan_);
  if (plan_.empty()) return false;
  Apply(now, actions);
  progressed_ = true;
  return true;
}

void Scheduler::Apply(Time now, Actions& actions) {
  uint16_t plan = 0;
  bool opened = false;
  for (const PlannedLaunch& launch : plan_.launch_span()) {
    CONCERT_CHECK(launch.count > 0 && launch.lane < policies::kLaneCount);
    const ReadyOp& first = snapshot_.ready[plan_.ops[launch.first]];
    if (first.work.category == Category::kCollective) {
      CONCERT_CHECK(launch.count == 1 && policies::IsCollectiveLane(launch.lane));
      Offer(now, launch, actions);
      continue;
    }
    CONCERT_CHECK(!policies::IsCollectiveLane(launch.lane));
    if (!opened) plan = OpenPlan(now, true, plan_.reason, plan_.predicted_us, plan_.serial_us);
    opened = true;
    Launch(now, launch, plan, actions);
  }
}

float Scheduler::SoloUs(OpId op) {
  return static_cast<float>(costs_.Of(pool_[op].op.work).solo_us);
}

void Scheduler::Launch(Time now, const PlannedLaunch& launch, uint16_t plan, Actions& actions) {
  Action action{.type = Action::Type::kLaunch,
                .lane = launch.lane,
                .form = launch.form,
                .sm_budget = launch.sm_budget,
                .company = launch.company,
                .schedule = launch.schedule,
                .order_mask = 0,
                .first = static_cast<uint16_t>(actions.ops.size()),
                .count = launch.count};
  PlanRecord& record = plans_[plan].record;
  ++record.launch_count;
  if (launch.count > 1 || record.launch_count == 1) record.form = launch.form;
  for (const uint16_t index : plan_.OpsOf(launch)) {
    const OpId op = snapshot_.ready[index].op;
    action.order_mask |= MarkLaunched(op, OpState::kLaunched, launch.lane, plan, SoloUs(op), now);
    actions.ops.push_back(op);
  }
  LaneInfo& lane = lanes_[launch.lane];
  const Time start = std::max(lane.busy_until, now + static_cast<Time>(device_.launch_us * 1e3));
  lane.busy_until = start + static_cast<Time>(launch.predicted_us * 1e3f);
  actions.list.push_back(action);
}

void Scheduler::Offer(Time now, const PlannedLaunch& launch, Actions& actions) {
  const OpId op = snapshot_.ready[plan_.ops[launch.first]].op;
  const float solo_us = SoloUs(op);
  const uint16_t plan = OpenPlan(now, false, policies::Reason::kCollective, solo_us, solo_us);
  ++plans_[plan].record.launch_count;
  const uint16_t mask = MarkLaunched(op, OpState::kOffered, launch.lane, plan, solo_us, now);
  actions.list.push_back({.type = Action::Type::kOffer,
                          .lane = launch.lane,
                          .form = Form::kSingle,
                          .sm_budget = 0,
                          .company = policies::CompanyClass::kSolo,
                          .schedule = nullptr,
                          .order_mask = mask,
                          .first = static_cast<uint16_t>(actions.ops.size()),
                          .count = 1});
  actions.ops.push_back(op);
}

// Moves the op from the front of its queue to its lane and plan. Returns the lanes it must be
// ordered behind.
uint16_t Scheduler::MarkLaunched(OpId op, OpState state, Lane lane, uint16_t plan, float solo_us,
                                 Time now) {
  OpSlot& slot = pool_[op];
  Queue& queue = queues_[slot.queue];
  CONCERT_CHECK(slot.state == OpState::kReady && queue.front == op);
  const uint16_t mask = OrderMask(slot, lane);
  slot.state = state;
  slot.lane = lane;
  slot.plan = plan;
  slot.solo_us = solo_us;
  slot.launched_at = now;
  AddToPlan(plan, slot);
  shares_[queue.share].served_ns += static_cast<int64_t>(solo_us * 1e3f);
  queue.last_launched = op;
  queue.front = slot.next;
  SetActive(slot.queue, true);
  if (state == OpState::kLaunched) {
    queue.launched = slot.op.ticket;
    ++lanes_[lane].in_flight;
    lanes_[lane].last_op = op;
  }
  if (queue.front == kNone) {
    Unlist(slot.queue);
  } else {
    pool_[queue.front].front_since = now;
    List(slot.queue, ListedAs::kBlocked);
  }
  return mask;
}

// Lanes, other than `lane`, of unfinished ops that `slot` depends on: its predecessor in the queue
// and its waits.
uint16_t Scheduler::OrderMask(const OpSlot& slot, Lane lane) const {
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
      if (pool_[op].op.ticket == value) mask |= static_cast<uint16_t>(1u << pool_[op].lane);
    }
  }
  return mask & static_cast<uint16_t>(~(1u << lane));
}

uint16_t Scheduler::OpenPlan(Time now, bool compute, policies::Reason reason, float predicted_us,
                             float serial_us) {
  CONCERT_CHECK(!free_plans_.empty());
  const uint16_t id = free_plans_.back();
  free_plans_.pop_back();
  PlanSlot& plan = plans_[id];
  plan.compute = compute;
  plan.remaining = 0;
  plan.solo_sum_us = 0;
  PlanRecord& record = plan.record;
  record.plan = next_plan_++;
  record.decided_at = now;
  record.started_at = record.finished_at = 0;
  record.predicted_us = predicted_us;
  record.serial_us = serial_us;
  record.op_count = record.launch_count = record.session_count = 0;
  record.reason = reason;
  record.form = Form::kSingle;
  ++(compute ? plans_in_flight_ : collectives_in_flight_);
  return id;
}

void Scheduler::AddToPlan(uint16_t id, const OpSlot& slot) {
  PlanSlot& plan = plans_[id];
  PlanRecord& record = plan.record;
  ++plan.remaining;
  plan.solo_sum_us += slot.solo_us;
  if (record.op_count < PlanRecord::kMaxListed) {
    const policies::Work& work = slot.op.work;
    record.ops[record.op_count] = {.session = slot.op.session,
                                   .kind = slot.op.kind,
                                   .dtype = work.dtype,
                                   .m = work.m,
                                   .n = work.n,
                                   .k = work.k,
                                   .batch = work.batch};
  }
  ++record.op_count;
  Share& share = shares_[queues_[slot.queue].share];
  if (share.last_plan != record.plan) {
    share.last_plan = record.plan;
    ++record.session_count;
  }
}

}  // namespace concert::daemon
