#include "daemon/sched/scheduler.h"

#include <algorithm>
#include <utility>

#include "daemon/check.h"
#include "daemon/quota/budget.h"

namespace concert::daemon {
namespace {

// How much sooner than those at work a session may come that has asked for less than its share: a
// client that thinks between its steps goes first again, and 256 sessions that wake together keep
// the others waiting for a quarter of a second, once.
constexpr int64_t kCreditNs = 1'000'000;

}  // namespace

using kernels::Failure;

Scheduler::Scheduler(const SchedulerOptions& options, const policies::DeviceModel& device,
                     std::unique_ptr<policies::Policy> policy)
    : options_(options),
      device_(device),
      costs_(device),
      policy_(std::move(policy)),
      pool_(options.max_ops),
      readiness_(options.max_queues, options.wait_timeout_ns),
      ledger_(device_, pool_),
      races_(options.find_races
                 ? std::make_unique<Races>(pool_, options.max_ops, options.max_queues)
                 : nullptr) {
  finished_.reserve(options.max_ops);
  candidates_.reserve(kMaxCandidatesOfList * (kReadyCollective + 1));
  companions_.reserve(policies::kMaxReady);
  snapshot_ready_.reserve(policies::kMaxReady);
  snapshot_running_.reserve(policies::kMaxReady);
  snapshot_.device = &device_;
  snapshot_.window = &window_;
}

QueueId Scheduler::AddQueue(uint32_t session, policies::Priority priority, Account* account,
                            uint64_t next_ticket) {
  QueueId id;
  if (!free_queues_.empty()) {
    id = free_queues_.back();
    free_queues_.pop_back();
  } else if (queues_.size() < options_.max_queues) {
    id = static_cast<QueueId>(queues_.size());
    queues_.emplace_back();
    // The lists hold each queue at most once: with room for all, listing never allocates.
    active_.reserve(queues_.capacity());
    ended_queues_.reserve(queues_.capacity());
    free_queues_.reserve(queues_.capacity());
  } else {
    return kNone;
  }
  Queue& queue = queues_[id];
  queue = Queue{};
  queue.used = true;
  queue.session = session;
  queue.priority = priority;
  queue.account = account;
  queue.submitted = queue.finished = next_ticket - 1;
  readiness_.Add(id, next_ticket - 1);
  JoinShare(queue);
  return id;
}

void Scheduler::JoinShare(Queue& queue) {
  auto [entry, added] =
      share_of_session_.try_emplace(queue.session, static_cast<uint32_t>(shares_.size()));
  if (added) {
    if (!free_shares_.empty()) {
      entry->second = free_shares_.back();
      free_shares_.pop_back();
    } else {
      shares_.emplace_back();
    }
    // A newcomer starts level with those at work, so that it neither starves them nor is starved.
    shares_[entry->second] = {.served_ns = level_ns_};
  }
  queue.share = entry->second;
}

int64_t& Scheduler::ServedNs(const Queue& queue) {
  return shares_[queue.share].served_ns[policies::IndexOf(queue.priority)];
}

// Start-time fair queueing (Goyal, Vin, Cheng 1996): time that a session did not ask for is lost to
// it, else one that slept for an hour could keep all others waiting for as long.
void Scheduler::LimitCredit(const Queue& queue) {
  int64_t& served = ServedNs(queue);
  served = std::max(served, level_ns_[policies::IndexOf(queue.priority)] - kCreditNs);
}

void Scheduler::CountService(const Queue& queue, int64_t ns) {
  int64_t& level = level_ns_[policies::IndexOf(queue.priority)];
  int64_t& served = ServedNs(queue);
  level = std::max(level, served);
  served += ns;
}

uint32_t Scheduler::RemoveQueue(QueueId id, bool cancel) {
  Queue& queue = queues_[id];
  CONCERT_CHECK(queue.used && !queue.removed);
  queue.removed = true;
  uint32_t cancelled = 0;
  if (cancel) {
    cancelled = FailFrom(queue.front, {CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_SESSION_CLOSED, {}});
  }
  if (readiness_.reached(id) >= queue.submitted) readiness_.Close(id);
  MaybeEnd(id);
  return cancelled;
}

// Fails `op` and those after it in its queue, but for parts that the rendezvous has.
uint32_t Scheduler::FailFrom(OpId op, const Failure& failure) {
  uint32_t failed = 0;
  for (; op != kNone; op = pool_[op].next) {
    if (pool_[op].state == OpState::kOffered || !pool_[op].may_launch) continue;
    Fail(op, failure);
    ++failed;
  }
  return failed;
}

void Scheduler::FailQueued(const Failure& failure) {
  for (const Queue& queue : queues_) FailFrom(queue.front, failure);
}

void Scheduler::MaybeEnd(QueueId id) {
  Queue& queue = queues_[id];
  if (!queue.removed || queue.ended || queue.held > 0 || queue.waiters > 0) return;
  queue.ended = true;
  ended_queues_.push_back(id);
}

void Scheduler::ReclaimQueue(QueueId id) {
  CONCERT_CHECK(queues_[id].ended && queues_[id].held == 0 && queues_[id].waiters == 0);
  queues_[id] = Queue{};
  free_queues_.push_back(id);
}

void Scheduler::ForgetSession(uint32_t session) {
  const auto entry = share_of_session_.find(session);
  if (entry == share_of_session_.end()) return;  // it never had a queue
  free_shares_.push_back(entry->second);
  share_of_session_.erase(entry);
}

void Scheduler::Submit(OpId id, QueueId queue_id, Time now) {
  Queue& queue = queues_[queue_id];
  OpSlot& slot = pool_[id];
  slot.queue = queue_id;
  slot.priority = queue.priority;
  slot.next = kNone;
  slot.admitted_at = now;
  slot.admission = ++admissions_;
  slot.work_hash = policies::HashWork(slot.op.work);
  slot.may_launch = slot.failure.ok();
  for (const OpSlot::LocalWait& wait : slot.local_waits) ++queues_[wait.queue].waiters;
  queue.submitted = slot.op.ticket;
  ++queue.held;
  const OpId previous = queue.tail;
  if (queue.head == kNone) {
    queue.head = id;
  } else {
    pool_[previous].next = id;
  }
  queue.tail = id;
  if (races_ != nullptr) TellRaces(id, previous);
  if (queue.front == kNone) {
    queue.front = id;
    readiness_.Touch(queue_id);
  }
}

// What the op must follow, as far as that is unfinished. `previous` in its queue: kNone if none is.
void Scheduler::TellRaces(OpId id, OpId previous) {
  const OpSlot& slot = pool_[id];
  kernels::InlineList<OpId, CONCERT_MAX_WAITS + 1> direct;
  if (previous != kNone) direct.push_back(previous);
  // Now, not when it is checked: a word that is reached in between may stand for ops whose ends
  // have not been seen. What a refused op would have waited for is not known.
  bool opaque = slot.watched_waits != 0 || !slot.may_launch;
  for (const OpSlot::LocalWait& wait : slot.local_waits) {
    const Queue& awaited = queues_[wait.queue];
    if (wait.value <= awaited.finished) continue;
    if (wait.value <= awaited.submitted) {
      direct.push_back(FindUnfinished(awaited, wait.value));
    } else {
      opaque = true;
    }
  }
  races_->Submit(id, queues_[slot.queue].share, direct.span(), opaque);
}

// REQUIRES: finished < ticket <= submitted.
OpId Scheduler::FindUnfinished(const Queue& queue, uint64_t ticket) const {
  if (ticket == queue.submitted) return queue.tail;
  OpId op = queue.head;
  while (pool_[op].op.ticket < ticket) op = pool_[op].next;
  return op;
}

void Scheduler::WaitSatisfied(OpId id, int index) {
  OpSlot& slot = pool_[id];
  slot.watched_waits &= static_cast<uint8_t>(~(1u << index));
  // One that is not first in its queue, or not examined yet, finds what is left when it is.
  if (queues_[slot.queue].front == id && readiness_.blocked(slot.queue)) {
    readiness_.WatchedMet(slot.queue);
  }
}

void Scheduler::Fail(OpId id, const Failure& failure) {
  OpSlot& slot = pool_[id];
  CONCERT_CHECK(slot.state == OpState::kQueued || slot.state == OpState::kReady);
  slot.failure = failure;
  slot.may_launch = false;
  slot.state = OpState::kQueued;
  ReleasePart(slot);
  if (queues_[slot.queue].front != id) return;
  readiness_.Unblock(slot.queue);
  TakeOff(slot.queue);
  readiness_.Touch(slot.queue);
}

void Scheduler::RanksThere(OpId id, uint8_t ranks, Time since) {
  CONCERT_CHECK(pool_[id].state == OpState::kOffered);
  ledger_.RanksThere(id, ranks, since);
}

void Scheduler::PartLaunched(OpId id, const Reservation& reservation, Time now) {
  OpSlot& slot = pool_[id];
  CONCERT_CHECK(slot.state == OpState::kOffered);
  ReleasePart(slot);
  if (!slot.failure.ok()) {  // FailAll came while the rendezvous had it.
    ReturnToQueue(slot.queue, id);
    return;
  }
  slot.state = OpState::kLaunched;
  ledger_.LaunchPart(id, reservation, now);
  SetActive(slot.queue, true);
  Advance(slot.queue, slot.op.ticket);
  readiness_.Touch(slot.queue);
}

void Scheduler::PartFailed(OpId id, const Failure& failure) {
  OpSlot& slot = pool_[id];
  CONCERT_CHECK(slot.state == OpState::kOffered);
  ReleasePart(slot);
  if (slot.failure.ok()) slot.failure = failure;
  ReturnToQueue(slot.queue, id);
}

// Takes back an offered op, which is the newest of its queue that left it, to complete it with its
// failure.
void Scheduler::ReturnToQueue(QueueId queue_id, OpId id) {
  OpSlot& slot = pool_[id];
  ledger_.TakeBack(id);
  slot.state = OpState::kQueued;
  slot.may_launch = false;
  Queue& queue = queues_[queue_id];
  if (queue.last_launched == id) {  // else FailAll has already moved the front back
    readiness_.Unblock(queue_id);   // the front was the op behind it
    queue.front = id;
    queue.last_launched = kNone;
  }
  readiness_.Touch(queue_id);
}

OpId Scheduler::FindLaunched(QueueId id, uint64_t ticket) const {
  const Queue& queue = queues_[id];
  for (OpId op = queue.head; op != queue.front; op = pool_[op].next) {
    if (pool_[op].op.ticket == ticket) return pool_[op].state == OpState::kLaunched ? op : kNone;
  }
  return kNone;
}

void Scheduler::LaunchFailed(OpId id, const Failure& failure) { pool_[id].failure = failure; }

void Scheduler::TimelineSeen(QueueId id, uint64_t value, Time now) {
  Queue& queue = queues_[id];
  while (queue.head != queue.front) {
    const OpId op = queue.head;
    if (pool_[op].state != OpState::kLaunched || pool_[op].op.ticket > value) break;
    Finish(op, now);
  }
  if (queue.head != queue.front) {
    if (pool_[queue.head].state != OpState::kLaunched) SetActive(id, false);
    return;
  }
  SetActive(id, false);
  if (queue.front == kNone) return;
  // A failed op at the front completes when all before it have finished, and a part that was held
  // back is offered.
  if (!pool_[queue.front].may_launch || queue.list == kHeldBack) readiness_.Touch(id);
}

// The op with this ticket, and so all before it, is launched or has ended.
void Scheduler::Advance(QueueId id, uint64_t ticket) {
  readiness_.Reach(id, ticket);
  const Queue& queue = queues_[id];
  if (queue.removed && ticket == queue.submitted) readiness_.Close(id);
}

// Takes a launched op off its queue and out of the ledger. Its slot is released by the next step.
void Scheduler::Finish(OpId id, Time now) {
  OpSlot& slot = pool_[id];
  Queue& queue = queues_[slot.queue];
  if (queue.last_launched == id) queue.last_launched = kNone;
  queue.head = slot.next;
  if (queue.head == kNone) queue.tail = kNone;
  queue.finished = slot.op.ticket;
  if (races_ != nullptr) races_->End(id);
  ledger_.Finish(id, now);
  EndRun(slot, now);
  finished_.push_back(id);
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
        ledger_.Withdraw(op);
        EndRun(slot, slot.flight.launched_at);
      }
      ReleasePart(slot);
      slot.state = OpState::kQueued;
      slot.may_launch = false;
    }
    readiness_.Unblock(id);
    TakeOff(id);
    queue.front = queue.head;
    queue.last_launched = kNone;
    SetActive(id, false);
    readiness_.Touch(id);
  }
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

// The op has ended and waits for no queue any more. Its queue stays until its last op is released:
// who carries that out asks whose it is.
void Scheduler::Release(OpId id, Actions& actions) {
  const OpSlot& slot = pool_[id];
  actions.released.push_back(id);
  for (const OpSlot::LocalWait& wait : slot.local_waits) {
    --queues_[wait.queue].waiters;
    MaybeEnd(wait.queue);
  }
  --queues_[slot.queue].held;
  MaybeEnd(slot.queue);
}

void Scheduler::ReleaseFinished(Actions& actions) {
  const size_t count = std::min(finished_.size(), PerTurn<size_t>(Work::kReleases));
  if (count == 0) return;
  for (size_t i = 0; i < count; ++i) Release(finished_[i], actions);
  finished_.erase(finished_.begin(), finished_.begin() + static_cast<ptrdiff_t>(count));
}

void Scheduler::Step(Time now, Actions& actions) {
  CONCERT_CHECK(races_ == nullptr || !races_->unchecked());
  // The actions of the step before have been carried out.
  if (std::exchange(planned_, false)) policy_->Reclaim();
  for (const policies::Outcome& outcome : ledger_.plans().TakeOutcomes()) policy_->Learn(outcome);
  ReleaseFinished(actions);
  if (parts_stalled()) readiness_.Touch(lists_[kStalled].first);  // another GPU may have freed some
  TouchHeldBack();
  examinations_left_ = PerTurn<int>(Work::kQueues);
  completions_left_ = PerTurn<int>(Work::kFailures);
  int wakes_left = Readiness::kWakesPerStep;
  bool more = true;
  while (more) {
    wakes_left -= readiness_.Wake(now, wakes_left);
    ExamineTouched(now, actions);
    // What completed may have woken others; what is launched does.
    more = (readiness_.waking() && wakes_left > 0) ||
           (ready_count_ > 0 && actions.HasRoom() && Decide(now, actions));
  }
}

}  // namespace concert::daemon
