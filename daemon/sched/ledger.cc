#include "daemon/sched/ledger.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "kernels/op_table.h"

namespace concert::daemon {
namespace {

using kernels::LaunchRequest;

// Of a launch, as predicted: a hundredth of what peers wait for each other. When what takes longer
// ends is too uncertain until it has.
constexpr float kLongUs = 100'000;

}  // namespace

Ledger::Ledger(const policies::DeviceModel& device, OpPool& pool)
    : device_(device), pool_(pool), ranges_(policies::kMaxReady) {
  waiting_.reserve(policies::kMaxReady);
}

void Ledger::Launch(LaunchRequest& launch, std::span<const OpId> ops, bool chained, OpenPlan& plan,
                    Time now) {
  const Lane lane = launch.planned.lane;
  ranges_.Clear();
  for (const OpId op : ops) ranges_.Add(kernels::AccessesOf(pool_[op].op));
  launch.weights_ready = chained && WeightsReady(writes_, ranges_);
  const uint16_t id = plans_.OpenLaunch(plan.plan, launch.planned, now);
  launch.plan = plans_.PlanNumber(id);
  const uint64_t lane_launch = ++lanes_[lane].launches;
  const uint32_t clock_launch = Occupy(launch, plan, now);
  const bool is_far = launch.planned.predicted_us > kLongUs || StartsFar(launch);
  for (size_t i = 0; i < ops.size(); ++i) {
    OpSlot& slot = pool_[ops[i]];
    // Member by member: a Flight made elsewhere and copied here is read while it is written.
    OpSlot::Flight& flight = slot.flight;
    flight.lane = lane;
    flight.launch = id;
    flight.index_in_launch = static_cast<uint16_t>(i);
    flight.reserved_sms = 0;
    flight.waiting = OpSlot::Flight::kUnlisted;
    flight.is_far = is_far;
    flight.clock_launch = clock_launch;
    flight.lane_launch = lane_launch;
    flight.launched_at = now;
    Enqueue(ops[i], ranges_.written(i));
    plans_.Add(slot);
  }
}

void Ledger::Close(const policies::Plan& plan, const OpenPlan& open) {
  const float latency_us = static_cast<float>(open.latency) * 1e-3f;
  const float span_us = static_cast<float>(open.end - open.start) * 1e-3f;
  const float policy_us = plan.predicted_us + latency_us;
  const float predicted_us = std::max(policy_us, span_us);
  // One after the other they would have waited for the same.
  plans_.SetPrediction(open.plan, policy_us, predicted_us,
                       plan.serial_us + predicted_us - plan.predicted_us);
}

void Ledger::Offer(OpId op, Lane lane, uint16_t sms, Time now) {
  pool_[op].flight = {.lane = lane, .reserved_sms = sms, .launched_at = now};
  RanksThere(op, 1, now);
}

// A part that found the list full comes on it with the first news when there is room.
void Ledger::RanksThere(OpId op, uint8_t ranks, Time since) {
  OpSlot& slot = pool_[op];
  if (slot.flight.waiting == OpSlot::Flight::kUnlisted) {
    if (waiting_.size() == policies::kMaxReady) return;
    slot.flight.waiting = static_cast<uint16_t>(waiting_.size());
    waiting_.push_back({.op = op,
                        .session = slot.op.session,
                        .priority = slot.priority,
                        .sms = slot.flight.reserved_sms,
                        .work = slot.op.work});
  }
  policies::WaitingCollective& part = waiting_[slot.flight.waiting];
  part.ranks_there = ranks;
  part.since = since;
}

void Ledger::Unlist(OpId op) {
  const uint16_t place =
      std::exchange(pool_[op].flight.waiting, uint16_t{OpSlot::Flight::kUnlisted});
  if (place == OpSlot::Flight::kUnlisted) return;
  if (place + 1u < waiting_.size()) {
    waiting_[place] = waiting_.back();
    pool_[waiting_[place].op].flight.waiting = place;
  }
  waiting_.pop_back();
}

void Ledger::LaunchPart(OpId op, const Reservation& reservation, Time now) {
  Unlist(op);
  OpSlot& slot = pool_[op];
  slot.flight.launch = plans_.LaunchCollective(slot, reservation, now);
  slot.flight.launched_at = now;
  slot.flight.reserved_sms = reservation.sms;
  LaneClock& clock = lanes_[slot.flight.lane].clock;
  const Time start = std::max(clock.BusyUntil(now), now);
  slot.flight.clock_launch = clock.Launched(now, start + reservation.run_ns, 1);
  ranges_.Clear();
  ranges_.Add(kernels::AccessesOf(slot.op));
  Enqueue(op, ranges_.written());
}

void Ledger::Enqueue(OpId op, std::span<const kernels::ByteRange> written) {
  OpSlot::Flight& flight = pool_[op].flight;
  writes_.Add(written, flight.writes);
  LaneInfo& lane = lanes_[flight.lane];
  ++lane.in_flight;
  lane.far += flight.is_far ? 1 : 0;
  lane.last_op = op;
}

// Predicts when the launch runs: behind what its lane and those before it have. Returns what names
// it in the lane's clock.
uint32_t Ledger::Occupy(const LaunchRequest& launch, OpenPlan& plan, Time now) {
  const policies::PlannedLaunch& planned = launch.planned;
  LaneClock& clock = lanes_[planned.lane].clock;
  const Time free_at = std::max(clock.BusyUntil(now), now);
  const double launch_us = device_.launch_us + device_.launch_op_us * planned.count;
  Time start = std::max(free_at, now + static_cast<Time>(launch_us * 1e3));
  if (free_at < plan.start) {
    plan.start = free_at;
    plan.latency = start - free_at;
  }
  for (uint16_t mask = launch.order_mask; mask != 0; mask &= static_cast<uint16_t>(mask - 1)) {
    start = std::max(start, lanes_[std::countr_zero(mask)].clock.BusyUntil(now));
  }
  const Time end = start + static_cast<Time>(planned.predicted_us * 1e3f);
  plan.end = std::max(plan.end, end);
  return clock.Launched(now, end, planned.count);
}

// Behind something that is far, on its lane or on one that it is ordered behind.
bool Ledger::StartsFar(const LaunchRequest& launch) const {
  const auto before = static_cast<uint16_t>(launch.order_mask | 1u << launch.planned.lane);
  for (uint16_t mask = before; mask != 0; mask &= static_cast<uint16_t>(mask - 1)) {
    if (lanes_[std::countr_zero(mask)].far > 0) return true;
  }
  return false;
}

void Ledger::Finish(OpId op, Time now) {
  LeaveLane(op, now);
  plans_.Finish(pool_[op], now);
}

void Ledger::Withdraw(OpId op) {
  const OpSlot& slot = pool_[op];
  LeaveLane(op, slot.flight.launched_at);
  plans_.Withdraw(slot, slot.flight.launched_at);
}

void Ledger::LeaveLane(OpId op, Time now) {
  const OpSlot::Flight& flight = pool_[op].flight;
  LaneInfo& lane = lanes_[flight.lane];
  --lane.in_flight;
  lane.far -= flight.is_far ? 1 : 0;
  lane.clock.Finished(flight.clock_launch, now);
  if (lane.last_op == op) lane.last_op = kNone;
  writes_.Remove(flight.writes);
}

Ledger::Time Ledger::NextEnd(Time after) const {
  Time next = std::numeric_limits<Time>::max();
  for (const LaneInfo& lane : lanes_) {
    if (lane.in_flight == 0) continue;
    if (const Time end = lane.clock.RunningUntil(); end > after) next = std::min(next, end);
  }
  return next;
}

Ledger::Backlog Ledger::BacklogOf(policies::Priority priority, Time now) const {
  const bool high = priority == policies::Priority::kHigh;
  Backlog backlog;
  for (Lane lane = high ? policies::kFirstHighLane : Lane{0}; lane < policies::kCollectiveLane;
       ++lane) {
    backlog.ns = std::max(backlog.ns, lanes_[lane].clock.BusyUntil(now) - now);
    backlog.running_ns = std::max(backlog.running_ns, lanes_[lane].clock.running_ns());
  }
  return backlog;
}

int Ledger::IdleLanes(policies::Priority priority) const {
  const bool high = priority == policies::Priority::kHigh;
  const Lane first = high ? policies::kFirstHighLane : policies::kFirstNormalLane;
  const Lane end = first + (high ? policies::kHighLaneCount : policies::kNormalLaneCount);
  int idle = 0;
  for (Lane lane = first; lane < end; ++lane) idle += lanes_[lane].in_flight == 0 ? 1 : 0;
  return idle;
}

policies::Lane Ledger::LaneBehind(OpId op) const {
  const Lane lane = pool_[op].flight.lane;
  if (policies::IsCollectiveLane(lane)) return policies::kNoLane;
  return lanes_[lane].last_op == op ? lane : policies::kNoLane;
}

kernels::Predecessor Ledger::PredecessorOn(Lane lane, OpId op) const {
  const OpSlot::Flight& flight = pool_[op].flight;
  if (flight.lane != lane) return {};
  const uint64_t back = lanes_[lane].launches + 1 - flight.lane_launch;
  if (back > kernels::kMaxGroupPredecessors) return {};
  return {.launches_back = static_cast<uint16_t>(back), .op = flight.index_in_launch};
}

}  // namespace concert::daemon
