#include "daemon/sched/scheduler.h"

#include <algorithm>
#include <utility>

#include "daemon/check.h"

namespace concert::daemon {
namespace {

using kernels::Failure;

constexpr Time kTimeoutScanPeriodNs = 1'000'000;

uint32_t SessionOf(uint64_t timeline) { return static_cast<uint32_t>(timeline >> 32); }
uint32_t IndexOf(uint64_t timeline) { return static_cast<uint32_t>(timeline); }

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, const policies::DeviceModel& device,
                     std::unique_ptr<policies::Policy> policy)
    : options_(options),
      device_(device),
      costs_(device),
      policy_(std::move(policy)),
      pool_(options.max_ops) {
  finished_.reserve(options.max_ops);
  candidates_.reserve(4 * policies::kMaxReady);
  snapshot_ready_.reserve(policies::kMaxReady);
  snapshot_running_.reserve(policies::kMaxReady);
  launch_ranges_.reserve(policies::kMaxReady);
  snapshot_.device = &device_;
}

QueueId Scheduler::AddQueue(uint32_t session, policies::Priority priority) {
  QueueId id;
  if (!free_queues_.empty()) {
    id = free_queues_.back();
    free_queues_.pop_back();
  } else if (queues_.size() < options_.max_queues) {
    id = static_cast<QueueId>(queues_.size());
    queues_.emplace_back();
    // The lists hold each queue at most once: with room for all, listing never allocates.
    active_.reserve(queues_.capacity());
    blocked_.reserve(queues_.capacity());
    ready_.reserve(queues_.capacity());
    free_queues_.reserve(queues_.capacity());
  } else {
    return kNone;
  }
  auto [entry, added] =
      share_of_session_.try_emplace(session, static_cast<uint32_t>(shares_.size()));
  if (added) {
    if (!free_shares_.empty()) {
      entry->second = free_shares_.back();
      free_shares_.pop_back();
    } else {
      shares_.emplace_back();
    }
    // A newcomer starts level with the least served, so that it neither starves the others nor is
    // starved.
    int64_t least = 0;
    bool found = false;
    for (uint32_t i = 0; i < shares_.size(); ++i) {
      if (shares_[i].queues == 0) continue;
      least = found ? std::min(least, shares_[i].served_ns) : shares_[i].served_ns;
      found = true;
    }
    shares_[entry->second] = {.served_ns = least};
  }
  ++shares_[entry->second].queues;
  Queue& queue = queues_[id];
  queue = Queue{};
  queue.used = true;
  queue.session = session;
  queue.priority = priority;
  queue.share = entry->second;
  return id;
}

void Scheduler::RemoveQueue(QueueId id, bool cancel) {
  Queue& queue = queues_[id];
  CONCERT_CHECK(queue.used && !queue.removed);
  queue.removed = true;
  if (cancel) FailFrom(queue.front, {CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_SESSION_CLOSED, {}});
  progressed_ = true;
  MaybeEnd(id);
}

// Fails `op` and those after it in its queue, but for parts that the rendezvous has.
void Scheduler::FailFrom(OpId op, const Failure& failure) {
  for (; op != kNone; op = pool_[op].next) {
    if (pool_[op].state != OpState::kOffered && pool_[op].may_launch) Fail(op, failure);
  }
}

void Scheduler::FailQueued(const Failure& failure) {
  for (const Queue& queue : queues_) FailFrom(queue.front, failure);
}

void Scheduler::MaybeEnd(QueueId id) {
  Queue& queue = queues_[id];
  if (!queue.removed || queue.ended || queue.head != kNone || queue.waiters > 0) return;
  Share& share = shares_[queue.share];
  if (--share.queues == 0) {
    share_of_session_.erase(queue.session);
    free_shares_.push_back(queue.share);
  }
  queue.ended = true;
}

void Scheduler::ReclaimQueue(QueueId id) {
  CONCERT_CHECK(queues_[id].ended);
  queues_[id] = Queue{};
  free_queues_.push_back(id);
}

void Scheduler::Submit(OpId id, QueueId queue_id, Time now) {
  Queue& queue = queues_[queue_id];
  OpSlot& slot = pool_[id];
  slot.queue = queue_id;
  slot.next = kNone;
  slot.admitted_at = now;
  slot.admission = ++admissions_;
  slot.work_hash = policies::HashWork(slot.op.work);
  slot.may_launch = slot.failure.ok();
  for (int i = 0; i < slot.local_wait_count; ++i) ++queues_[slot.local_waits[i].queue].waiters;
  queue.submitted = slot.op.ticket;
  if (queue.head == kNone) {
    queue.head = id;
  } else {
    pool_[queue.tail].next = id;
  }
  queue.tail = id;
  if (queue.front == kNone) {
    queue.front = id;
    slot.front_since = now;
    List(queue_id, ListedAs::kBlocked);
    progressed_ = true;
  }
}

void Scheduler::WaitSatisfied(OpId id, int index) {
  pool_[id].watched_waits &= static_cast<uint8_t>(~(1u << index));
  progressed_ = true;
}

void Scheduler::Fail(OpId id, const Failure& failure) {
  OpSlot& slot = pool_[id];
  CONCERT_CHECK(slot.state == OpState::kQueued || slot.state == OpState::kReady);
  slot.failure = failure;
  slot.may_launch = false;
  slot.state = OpState::kQueued;
  if (queues_[slot.queue].front == id) List(slot.queue, ListedAs::kBlocked);
  progressed_ = true;
}

void Scheduler::PartLaunched(OpId id, Time now) {
  OpSlot& slot = pool_[id];
  CONCERT_CHECK(slot.state == OpState::kOffered);
  if (!slot.failure.ok()) {  // FailAll came while the rendezvous had it.
    ReturnToQueue(slot.queue, id);
    return;
  }
  slot.state = OpState::kLaunched;
  slot.launched_at = now;
  book_.SetLaunched(slot.launch, now);
  LaneInfo& lane = lanes_[slot.lane];
  ++lane.in_flight;
  lane.last_op = id;
  const Time start = std::max(lane.clock.BusyUntil(now), now);
  slot.clock_launch = lane.clock.Launched(now, start + static_cast<Time>(slot.solo_us * 1e3f), 1);
  queues_[slot.queue].launched = slot.op.ticket;
  progressed_ = true;
}

void Scheduler::PartFailed(OpId id, const Failure& failure) {
  OpSlot& slot = pool_[id];
  CONCERT_CHECK(slot.state == OpState::kOffered);
  if (slot.failure.ok()) slot.failure = failure;
  ReturnToQueue(slot.queue, id);
}

// Takes back an offered op, which is the newest in flight of its queue, to complete it with its
// failure.
void Scheduler::ReturnToQueue(QueueId queue_id, OpId id) {
  OpSlot& slot = pool_[id];
  slot.state = OpState::kQueued;
  slot.may_launch = false;
  Withdraw(slot);
  Queue& queue = queues_[queue_id];
  if (queue.last_launched == id) {  // else FailAll has already moved the front back
    queue.front = id;
    queue.last_launched = kNone;
  }
  if (queue.head == queue.front) SetActive(queue_id, false);
  List(queue_id, ListedAs::kBlocked);
  progressed_ = true;
}

void Scheduler::LaunchFailed(OpId id, const Failure& failure) { pool_[id].failure = failure; }

void Scheduler::TimelineSeen(QueueId id, uint64_t value, Time now) {
  Queue& queue = queues_[id];
  while (queue.head != queue.front) {
    const OpId op = queue.head;
    if (pool_[op].state != OpState::kLaunched || pool_[op].op.ticket > value) break;
    Finish(op, now);
  }
  if (queue.head == queue.front) SetActive(id, false);
}

// Takes a launched op off its queue, lane and plan. Its slot is released by the next step.
void Scheduler::Finish(OpId id, Time now) {
  OpSlot& slot = pool_[id];
  Queue& queue = queues_[slot.queue];
  LaneInfo& lane = lanes_[slot.lane];
  --lane.in_flight;
  lane.clock.Finished(slot.clock_launch, now);
  if (lane.last_op == id) lane.last_op = kNone;
  if (queue.last_launched == id) queue.last_launched = kNone;
  queue.head = slot.next;
  if (queue.head == kNone) queue.tail = kNone;
  queue.finished = slot.op.ticket;
  writes_.Remove(slot.write_slot);
  book_.Finish(slot, now);
  finished_.push_back(id);
  progressed_ = true;
}

// The op will not end on the device.
void Scheduler::Withdraw(OpSlot& slot) {
  writes_.Remove(slot.write_slot);
  book_.Withdraw(slot, slot.launched_at);
}

void Scheduler::FailAll(const Failure& failure) {
  for (QueueId id = 0; id < queues_.size(); ++id) {
    Queue& queue = queues_[id];
    if (!queue.used || queue.head == kNone) continue;
    for (OpId op = queue.head; op != kNone; op = pool_[op].next) {
      OpSlot& slot = pool_[op];
      if (slot.failure.ok()) slot.failure = failure;
      if (slot.state == OpState::kOffered)
        continue;  // the rendezvous still has it and will give it back
      if (slot.state == OpState::kLaunched) {
        LaneInfo& lane = lanes_[slot.lane];
        --lane.in_flight;
        lane.clock.Finished(slot.clock_launch, slot.launched_at);
        lane.last_op = kNone;
        slot.state = OpState::kQueued;
        Withdraw(slot);
      }
      slot.state = OpState::kQueued;
      slot.may_launch = false;
    }
    queue.front = queue.head;
    queue.last_launched = kNone;
    SetActive(id, false);
    List(id, ListedAs::kBlocked);
  }
  progressed_ = true;
}

void Scheduler::SetActive(QueueId id, bool active) {
  Queue& queue = queues_[id];
  if (queue.active == active) return;
  queue.active = active;
  if (active) {
    queue.active_index = static_cast<uint32_t>(active_.size());
    active_.push_back(id);
    return;
  }
  const QueueId moved = active_.back();
  active_[queue.active_index] = moved;
  queues_[moved].active_index = queue.active_index;
  active_.pop_back();
}

void Scheduler::Unlist(QueueId id) {
  Queue& queue = queues_[id];
  if (queue.listed == ListedAs::kNot) return;
  std::vector<QueueId>& list = queue.listed == ListedAs::kReady ? ready_ : blocked_;
  const QueueId moved = list.back();
  list[queue.list_index] = moved;
  queues_[moved].list_index = queue.list_index;
  list.pop_back();
  queue.listed = ListedAs::kNot;
}

void Scheduler::List(QueueId id, ListedAs as) {
  Queue& queue = queues_[id];
  if (queue.listed == as) return;
  Unlist(id);
  std::vector<QueueId>& list = as == ListedAs::kReady ? ready_ : blocked_;
  queue.list_index = static_cast<uint32_t>(list.size());
  queue.listed = as;
  list.push_back(id);
}

// Whether every wait is satisfied or can be paid on the device. Fails the op if one never can be.
bool Scheduler::WaitsMet(OpSlot& slot) {
  if (slot.watched_waits != 0) return false;
  for (int i = 0; i < slot.local_wait_count; ++i) {
    const OpSlot::LocalWait& wait = slot.local_waits[i];
    const Queue& other = queues_[wait.queue];
    if (other.finished >= wait.value || other.launched >= wait.value) continue;
    if (other.removed && other.submitted < wait.value) {
      slot.failure = {CONCERT_ABI_CANCELLED,
                      CONCERT_MESSAGE_WAIT_UNREACHABLE,
                      {wait.index, wait.value, other.submitted}};
      slot.may_launch = false;
    }
    return false;
  }
  return true;
}

// Fails the op if its waits have outlasted their bound.
void Scheduler::CheckTimeouts(OpSlot& slot, Time now) {
  if (now - slot.front_since < options_.wait_timeout_ns) return;
  for (uint32_t i = 0; i < slot.op.wait_count; ++i) {
    const concert_wait_entry& wait = slot.op.waits[i];
    uint64_t stood_at = slot.watched_values[i];
    bool unmet = (slot.watched_waits >> i & 1u) != 0;
    for (int j = 0; j < slot.local_wait_count && !unmet; ++j) {
      const Queue& other = queues_[slot.local_waits[j].queue];
      if (slot.local_waits[j].index != i) continue;
      stood_at = other.finished;
      unmet = other.finished < wait.value && other.launched < wait.value;
    }
    if (!unmet) continue;
    slot.failure = {CONCERT_ABI_DEADLINE_EXCEEDED,
                    CONCERT_MESSAGE_WAIT_TIMEOUT,
                    {static_cast<uint64_t>(options_.wait_timeout_ns / 1'000'000),
                     IndexOf(wait.timeline), SessionOf(wait.timeline), wait.value, stood_at}};
    slot.may_launch = false;
    return;
  }
}

// Brings the queue's front op as far as it can go: completed if it failed, ready, or blocked.
void Scheduler::Evaluate(QueueId id, Time now, Actions& actions) {
  Queue& queue = queues_[id];
  while (queue.front != kNone) {
    OpSlot& slot = pool_[queue.front];
    if (slot.state == OpState::kOffered) break;  // FailAll: the rendezvous gives it back
    if (slot.may_launch) {
      // The previous op's part is not enqueued yet, so nothing can be ordered behind it.
      if (queue.last_launched != kNone && pool_[queue.last_launched].state == OpState::kOffered)
        break;
      if (WaitsMet(slot)) {
        slot.state = OpState::kReady;
        slot.ready_at = now;
        List(id, ListedAs::kReady);
        return;
      }
      if (slot.may_launch) CheckTimeouts(slot, now);
      if (slot.may_launch) break;
    }
    if (queue.head != queue.front || !actions.HasRoom()) break;
    CompleteFront(id, now, actions);
  }
  if (queue.front == kNone) {
    Unlist(id);
    MaybeEnd(id);
  } else {
    List(id, ListedAs::kBlocked);
  }
}

// Ends the failed op at the front of its queue, all earlier ones having finished.
void Scheduler::CompleteFront(QueueId id, Time now, Actions& actions) {
  Queue& queue = queues_[id];
  const OpId op = queue.front;
  OpSlot& slot = pool_[op];
  actions.Add(Action::Type::kComplete, op);
  book_.RecordFailed(slot, now);
  queue.finished = slot.op.ticket;
  queue.front = queue.head = slot.next;
  if (queue.head == kNone) queue.tail = kNone;
  if (queue.front != kNone) pool_[queue.front].front_since = now;
  actions.Add(Action::Type::kRelease, op);
  DropWaits(slot);
  progressed_ = true;
}

// The op waits for no queue any more.
void Scheduler::DropWaits(const OpSlot& slot) {
  for (int i = 0; i < slot.local_wait_count; ++i) {
    --queues_[slot.local_waits[i].queue].waiters;
    MaybeEnd(slot.local_waits[i].queue);
  }
}

// Re-examines blocked queues: all of them after progress, else only for timeouts now and then.
void Scheduler::EvaluateBlocked(Time now, Actions& actions) {
  while (progressed_ || now >= next_timeout_scan_) {
    progressed_ = false;
    next_timeout_scan_ = now + kTimeoutScanPeriodNs;
    // Backwards: what leaves the list is then the last of it, so that it keeps its order. Where
    // Evaluate takes out another, what comes in its place has been examined.
    for (size_t i = blocked_.size(); i > 0; --i) {
      if (i <= blocked_.size()) Evaluate(blocked_[i - 1], now, actions);
    }
    if (!actions.HasRoom()) {
      progressed_ = true;  // go on in the next step
      return;
    }
  }
}

// One action for all of them.
void Scheduler::ReleaseFinished(Actions& actions) {
  const size_t count = std::min(finished_.size(), actions.Room());
  if (count == 0) return;
  actions.Add(Action::Type::kRelease, {finished_.data(), count});
  for (size_t i = 0; i < count; ++i) {
    const OpSlot& slot = pool_[finished_[i]];
    DropWaits(slot);
    MaybeEnd(slot.queue);
  }
  finished_.erase(finished_.begin(), finished_.begin() + static_cast<ptrdiff_t>(count));
}

void Scheduler::Step(Time now, Actions& actions) {
  if (const auto outcome = book_.TakeOutcome()) policy_->Learn(*outcome);
  ReleaseFinished(actions);
  do {
    EvaluateBlocked(now, actions);
    if (ready_.empty() || !actions.HasRoom()) return;
  } while (Decide(now, actions));
}

}  // namespace concert::daemon
