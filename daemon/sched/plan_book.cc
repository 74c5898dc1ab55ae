#include "daemon/sched/plan_book.h"

#include <algorithm>

#include "daemon/check.h"
#include "kernels/group/plan/work_list.h"

namespace concert::daemon {
namespace {

using policies::Form;
using policies::Lane;

constexpr size_t kMaxPlans = PlanBook::kMaxComputePlans + PlanBook::kMaxCollectives;
constexpr size_t kMaxLaunches =
    PlanBook::kMaxComputePlans * policies::Plan::kMaxLaunches + PlanBook::kMaxCollectives;
// The dispatcher takes records long before; this only keeps lists from growing in a turn.
constexpr size_t kRoomForOps = 4096;

float Micros(Time duration_ns) { return static_cast<float>(duration_ns) * 1e-3f; }

std::vector<uint16_t> AllFree(size_t count) {
  std::vector<uint16_t> free;
  for (size_t i = count; i > 0; --i) free.push_back(static_cast<uint16_t>(i - 1));
  return free;
}

uint16_t TakeFree(std::vector<uint16_t>& free) {
  CONCERT_CHECK(!free.empty());
  const uint16_t id = free.back();
  free.pop_back();
  return id;
}

}  // namespace

PlanBook::PlanBook()
    : plans_(kMaxPlans),
      free_plans_(AllFree(kMaxPlans)),
      launches_(kMaxLaunches),
      free_launches_(AllFree(kMaxLaunches)) {
  op_records_.reserve(kRoomForOps);
  plan_records_.reserve(kMaxPlans);
  ended_.plans.reserve(kMaxComputePlans);
  outcomes_.reserve(kMaxComputePlans);
}

uint16_t PlanBook::Open(bool compute, policies::Priority priority, policies::Reason reason,
                        Time now) {
  const uint16_t id = TakeFree(free_plans_);
  PlanSlot& plan = plans_[id];
  plan.compute = compute;
  plan.priority = priority;
  plan.clean = true;
  plan.left_out = false;
  plan.policy_epoch = policy_epoch_;
  plan.unfinished = 0;
  plan.tag = 0;
  plan.solo_sum_us = plan.unfinished_solo_us = 0;
  plan.time_per_solo = 0;
  plan.launched_at = plan.started_at = plan.time_ns = 0;
  PlanRecord& record = plan.record;
  record.plan = next_plan_++;
  record.decided_at = now;
  record.started_at = record.finished_at = 0;
  record.predicted_us = record.serial_us = 0;
  record.op_count = record.launch_count = record.session_count = 0;
  record.ops_by_form = {};
  record.sm_count = 0;
  record.reason = reason;
  record.form = Form::kSingle;
  plan.began_idle = open_count_ == 0;
  if (compute) open_[open_count_++] = id;
  ++OpenCount(plan);
  return id;
}

uint16_t PlanBook::OpenPlan(const policies::Plan& plan, policies::Priority priority, Time now) {
  const uint16_t id = Open(true, priority, plan.reason, now);
  plans_[id].tag = plan.tag;
  SetPrediction(id, plan.predicted_us, plan.predicted_us, plan.serial_us);
  return id;
}

uint16_t PlanBook::LaunchCollective(const OpSlot& slot, const Reservation& reservation, Time now) {
  if (collectives_ == kMaxCollectives) return kNoLaunch;
  const uint16_t plan = Open(false, policies::Priority::kNormal, policies::Reason::kCollective,
                             /*now=*/slot.flight.launched_at);
  const float predicted_us = Micros(reservation.run_ns);
  SetPrediction(plan, predicted_us, predicted_us, predicted_us);
  plans_[plan].record.transport = reservation.transport;
  policies::PlannedLaunch launch{};
  launch.count = 1;
  launch.sm_budget = reservation.sms;
  launch.lane = slot.flight.lane;
  const uint16_t id = OpenLaunch(plan, launch, now);
  AddTo(id, slot);
  AddSession(id);
  return id;
}

void PlanBook::SetPrediction(uint16_t plan, float policy_us, float predicted_us, float serial_us) {
  plans_[plan].policy_us = policy_us;
  PlanRecord& record = plans_[plan].record;
  record.predicted_us = predicted_us;
  record.serial_us = record.op_count > 1 ? serial_us : predicted_us;
}

uint16_t PlanBook::OpenLaunch(uint16_t plan, const policies::PlannedLaunch& launch, Time now) {
  PlanRecord& record = plans_[plan].record;
  if (record.launch_count == 0) plans_[plan].launched_at = now;
  ++record.launch_count;
  record.ops_by_form[static_cast<size_t>(launch.form)] += launch.count;
  if (record.launch_count == 1 || launch.count > 1) {
    record.form = launch.form;
    record.sm_count = launch.work_list != nullptr
                          ? kernels::GroupWorkList::Of(launch.work_list)->grid()
                          : launch.sm_budget;
  }
  const uint16_t id = TakeFree(free_launches_);
  launches_[id] = {.plan = plan, .form = launch.form, .lane = launch.lane, .launched_at = now};
  group_launches_ += launch.form == Form::kGroup;
  return id;
}

void PlanBook::Add(const OpSlot& slot) { AddTo(slot.flight.launch, slot); }

void PlanBook::AddTo(uint16_t id, const OpSlot& slot) {
  LaunchSlot& launch = launches_[id];
  PlanSlot& plan = plans_[launch.plan];
  PlanRecord& record = plan.record;
  ++launch.unfinished;
  ++plan.unfinished;
  plan.solo_sum_us += slot.solo_us;
  plan.unfinished_solo_us += slot.solo_us;
  if (record.op_count < PlanRecord::kMaxListed) {
    const policies::Work& work = slot.op.work;
    record.ops[record.op_count] = {.session = slot.op.session,
                                   .kind = slot.op.kind,
                                   .runs_on = work.runs_on,
                                   .problem = policies::Problem::Of(work)};
  }
  ++record.op_count;
  if (plan.compute) ++compute_ops_;
}

float PlanBook::TakeShare(PlanSlot& plan, float solo_us, Time started_at, Time since, Time now) {
  Time unshared;  // of the plan's time
  if (plan.started_at == 0) {
    unshared = now - since;
    plan.started_at = started_at;
  } else {
    unshared = now - std::max(since, plan.shared_until);
    if (started_at < plan.started_at) {  // a launch that began earlier but ends later
      unshared += plan.started_at - started_at;
      plan.started_at = started_at;
    }
  }
  plan.shared_until = now;
  plan.time_ns += unshared;
  // The last op takes what is left, whatever rounding has made of the sum.
  const float sharers_us = plan.unfinished == 1 ? solo_us : plan.unfinished_solo_us;
  if (sharers_us <= 0) return plan.unfinished == 1 ? Micros(unshared) : 0;
  plan.time_per_solo += static_cast<double>(Micros(unshared)) / sharers_us;
  plan.unfinished_solo_us -= solo_us;
  return static_cast<float>(plan.time_per_solo * solo_us);
}

void PlanBook::Finish(const OpSlot& slot, Time now) {
  if (slot.flight.launch == kNoLaunch) return RecordUnplanned(slot, now);
  LaunchSlot& launch = launches_[slot.flight.launch];
  PlanSlot& plan = plans_[launch.plan];
  LaneSlot& lane = lanes_[launch.lane];
  const Time since = std::max(launch.launched_at, lane.last_finish);
  if (launch.started_at == 0) launch.started_at = since;
  lane.last_finish = now;
  plan.clean &= slot.failure.ok();
  const float share = plan.solo_sum_us > 0 ? slot.solo_us / plan.solo_sum_us : 1.0f;
  op_records_.push_back({.session = slot.op.session,
                         .kind = slot.op.kind,
                         .status = static_cast<uint16_t>(slot.failure.status),
                         .queue = slot.op.queue,
                         .others = static_cast<uint16_t>(plan.record.op_count - 1),
                         .dtype = slot.op.work.dtype,
                         .form = launch.form,
                         .lane = slot.flight.lane,
                         .priority = slot.priority,
                         .reason = plan.record.reason,
                         .plan = plan.record.plan,
                         .flops = slot.op.work.flops,
                         .bytes = slot.op.work.hbm_bytes,
                         .admitted_at = slot.admitted_at,
                         .ready_at = slot.ready_at,
                         .launched_at = launch.launched_at,
                         .started_at = launch.started_at,
                         .finished_at = now,
                         .gpu_us = TakeShare(plan, slot.solo_us, launch.started_at, since, now),
                         .serial_us = plan.record.serial_us * share});
  Leave(slot, now);
}

void PlanBook::Withdraw(const OpSlot& slot, Time now) {
  if (slot.flight.launch == kNoLaunch) return;
  PlanSlot& plan = plans_[launches_[slot.flight.launch].plan];
  plan.clean = false;
  plan.unfinished_solo_us -= slot.solo_us;
  Leave(slot, now);
}

void PlanBook::RecordUnplanned(const OpSlot& slot, Time now) {
  op_records_.push_back({.session = slot.op.session,
                         .kind = slot.op.kind,
                         .status = static_cast<uint16_t>(slot.failure.status),
                         .queue = slot.op.queue,
                         .dtype = slot.op.work.dtype,
                         .lane = slot.flight.lane,
                         .priority = slot.priority,
                         .admitted_at = slot.admitted_at,
                         .finished_at = now});
}

// Takes the op off its launch and plan, and closes what has no more ops.
void PlanBook::Leave(const OpSlot& slot, Time now) {
  LaunchSlot& launch = launches_[slot.flight.launch];
  const uint16_t plan = launch.plan;
  if (--launch.unfinished == 0) {
    group_launches_ -= launch.form == Form::kGroup;
    free_launches_.push_back(slot.flight.launch);
  }
  if (--plans_[plan].unfinished == 0) Close(plan, now);
}

void PlanBook::Close(uint16_t id, Time now) {
  PlanSlot& plan = plans_[id];
  PlanRecord& record = plan.record;
  // While the first plan on an idle GPU ran, others were launched behind it: its end was seen late,
  // and it is no example of plans that nothing follows.
  const bool clear = CloseBesideItsClass(id) && !(plan.began_idle && open_count_ > 0);
  if (plan.started_at != 0) {
    record.started_at = now - plan.time_ns;
    record.finished_at = now;
    plan_records_.push_back(record);
    AddEnded(plan, clear, now);
  }
  if (plan.compute) compute_ops_ -= static_cast<int>(record.op_count);
  --OpenCount(plan);
  free_plans_.push_back(id);
}

// A plan that ends beside one of another class, or a collective: whose time it was cannot be said,
// neither of this plan nor of those.
bool PlanBook::CloseBesideItsClass(uint16_t id) {
  const PlanSlot& plan = plans_[id];
  const auto end = std::remove(open_.begin(), open_.begin() + open_count_, id);
  open_count_ = static_cast<int>(end - open_.begin());
  const auto of_its_class = [&](uint16_t other) {
    return plan.compute && plans_[other].priority == plan.priority;
  };
  if (plan.compute && collectives_ == 0 && std::all_of(open_.begin(), end, of_its_class)) {
    return true;
  }
  for (auto other = open_.begin(); other != end; ++other) {
    if (!of_its_class(*other)) plans_[*other].clean = false;
  }
  return false;
}

void PlanBook::AddEnded(const PlanSlot& plan, bool clear, Time now) {
  // What ended before it shared its time with it; what ends later has a beginning here.
  if (plan.left_out && plan.clean && (ended_.newest == 0 || ended_.clear)) {
    ended_.plans.clear();
    ended_.newest = 0;
    last_plan_end_ = std::max(last_plan_end_, now);
    return;
  }
  const Time since = std::max(plan.launched_at, last_plan_end_);
  if (ended_.newest == 0) ended_.since = since, ended_.clear = true;
  ended_.since = std::min(ended_.since, since);
  ended_.newest = std::max(ended_.newest, plan.record.plan);
  ended_.form = plan.record.form;
  ended_.clear &= clear && plan.clean && plan.tag != 0 && plan.policy_epoch == policy_epoch_ &&
                  ended_.plans.size() < ended_.plans.capacity();
  if (ended_.clear) ended_.plans.push_back({.tag = plan.tag, .predicted_us = plan.policy_us});
  last_plan_end_ = std::max(last_plan_end_, now);
}

// Whether what ended took the time that it has, and nothing else did. Where the next plan is of the
// same form, what that took of theirs is what theirs took of the one before them.
bool PlanBook::TimeIsTheirs() const {
  return open_count_ == 0 || ended_.plans.size() >= kMaxShared ||
         plans_[open_[0]].record.form == ended_.form;
}

std::span<const policies::Outcome> PlanBook::ShareTime() {
  outcomes_.clear();
  for (int i = 0; i < open_count_ && plans_[open_[i]].record.plan < ended_.newest; ++i) {
    if (!ended_.clear) {
      plans_[open_[i]].left_out = true;
    } else if (ended_.plans.size() < kMaxOvertaking) {
      return {};  // it was overtaken and shares their time
    }
  }
  if (ended_.clear && !TimeIsTheirs()) return {};
  float predicted_us = 0;
  for (const policies::Outcome& plan : ended_.plans) predicted_us += plan.predicted_us;
  const float actual_us = Micros(last_plan_end_ - ended_.since);
  if (ended_.clear && predicted_us > 0 && actual_us > 0) {
    outcomes_.swap(ended_.plans);
    for (policies::Outcome& plan : outcomes_) {
      plan.actual_us = actual_us * plan.predicted_us / predicted_us;
    }
  }
  ended_.plans.clear();
  ended_.newest = 0;
  return outcomes_;
}

}  // namespace concert::daemon
