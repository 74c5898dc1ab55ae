// How queues with news are examined: what their fronts still wait for, and which have failed.
#include <bit>

#include "daemon/check.h"
#include "daemon/quota/budget.h"
#include "daemon/sched/scheduler.h"

namespace concert::daemon {
namespace {

// Failed ops of one queue that complete before the next queue's turn.
constexpr int kCompletionsPerVisit = 16;

uint32_t SessionOf(uint64_t timeline) { return static_cast<uint32_t>(timeline >> 32); }
uint32_t IndexOf(uint64_t timeline) { return static_cast<uint32_t>(timeline); }

}  // namespace

void Scheduler::ExamineTouched(Time now, Actions& actions) {
  for (; examinations_left_ > 0 && readiness_.news(); --examinations_left_) {
    Examine(readiness_.Next(), now, actions);
    ++examined_;
  }
}

// Brings the queue's front op as far as it can go: completed if it failed, ready, or blocked.
void Scheduler::Examine(QueueId id, Time now, Actions& actions) {
  Queue& queue = queues_[id];
  for (int completions = 0; queue.front != kNone; ++completions) {
    OpSlot& slot = pool_[queue.front];
    if (slot.state == OpState::kOffered) return;  // FailAll: the rendezvous gives it back
    if (slot.state == OpState::kReady && queue.list < kStalled) return;
    const bool waits = !slot.local_waits.empty() || slot.watched_waits != 0;
    if (slot.may_launch && (waits || readiness_.blocked(id))) CheckWaits(id, slot, now);
    if (slot.may_launch) {
      if (!readiness_.blocked(id)) MakeReady(id, slot, now);
      return;
    }
    if (queue.head != queue.front) return;
    if (completions == kCompletionsPerVisit || completions_left_ == 0) {
      readiness_.Touch(id);  // behind the others
      return;
    }
    CompleteFront(id, now, actions);
    --completions_left_;
  }
}

void Scheduler::MakeReady(QueueId id, OpSlot& slot, Time now) {
  const Queue& queue = queues_[id];
  // The previous op's part is not enqueued yet, so nothing can be ordered behind it.
  if (queue.last_launched != kNone && pool_[queue.last_launched].state == OpState::kOffered) return;
  if (slot.state != OpState::kReady) {
    slot.ready_at = now;
    LimitCredit(queue);
  }
  slot.state = OpState::kReady;
  if (slot.op.work.runs_on != policies::RunsOn::kLinks) {
    PutOn(ReadyList(queue.priority, slot.op.work), id);
  } else if (FollowsSomethingFar(slot, now)) {
    PutOn(kHeldBack, id);
  } else {
    PutOn(ChargePart(queue, slot) ? kReadyCollective : kStalled, id);
  }
}

// Kernels of the other ranks would hold SMs until what this rank is behind has ended; after 10 s
// they give up, which costs everybody their GPU's context (kernels/comm/peer_block.cuh).
bool Scheduler::FollowsSomethingFar(const OpSlot& slot, Time now) const {
  bool far = false;
  VisitUnfinishedBefore(slot, [&](const OpSlot& before) { far |= ledger_.IsFar(before, now); });
  return far;
}

// Those that wait for queues of others, or until an end is near, a few each time.
void Scheduler::TouchHeldBack() {
  QueueId id = lists_[kHeldBack].first;
  for (int i = 0; i < PerTurn<int>(Work::kPartsHeldBack) && id != kNone;
       ++i, id = queues_[id].next) {
    readiness_.Touch(id);
  }
}

// Blocks the queue if its front waits for something; fails the front if it does so in vain.
void Scheduler::CheckWaits(QueueId id, OpSlot& slot, Time now) {
  if (readiness_.blocked(id)) {
    if (readiness_.unreachable(id)) {
      FailUnreachable(slot);
    } else if (readiness_.expired(id)) {
      FailTimedOut(slot);
    }
    if (!slot.may_launch) readiness_.Unblock(id);
    return;
  }
  kernels::InlineList<Readiness::Wait, CONCERT_MAX_WAITS> unmet;
  for (const OpSlot::LocalWait& wait : slot.local_waits) {
    if (WaitMet(wait)) continue;
    if (readiness_.closed(wait.queue)) return FailUnreachable(slot);
    unmet.push_back({wait.queue, wait.value});
  }
  const int watched = std::popcount(slot.watched_waits);
  if (unmet.empty() && watched == 0) return;
  readiness_.Block(id, unmet.span(), watched, now);
}

void Scheduler::FailUnreachable(OpSlot& slot) {
  for (const OpSlot::LocalWait& wait : slot.local_waits) {
    if (WaitMet(wait) || !readiness_.closed(wait.queue)) continue;
    slot.failure = {CONCERT_ABI_CANCELLED,
                    CONCERT_MESSAGE_WAIT_UNREACHABLE,
                    {wait.index, wait.value, queues_[wait.queue].submitted}};
    slot.may_launch = false;
    return;
  }
}

// The op's waits have outlasted their bound; its failure names the first that is not met.
void Scheduler::FailTimedOut(OpSlot& slot) {
  for (uint32_t i = 0; i < slot.op.waits.size(); ++i) {
    const concert_wait_entry& wait = slot.op.waits[i];
    uint64_t stood_at = 0;
    bool unmet = (slot.watched_waits >> i & 1u) != 0;
    for (const OpSlot::LocalWait& local : slot.local_waits) {
      if (unmet || local.index != i) continue;
      stood_at = queues_[local.queue].finished;
      unmet = !WaitMet(local);
    }
    if (!unmet) continue;
    slot.failure = {CONCERT_ABI_DEADLINE_EXCEEDED,
                    CONCERT_MESSAGE_WAIT_TIMEOUT,
                    {static_cast<uint64_t>(options_.wait_timeout_ns / 1'000'000),
                     IndexOf(wait.timeline), SessionOf(wait.timeline), wait.value, stood_at}};
    slot.timed_out_wait = static_cast<uint8_t>(i);
    slot.may_launch = false;
    return;
  }
}

// Ends the failed op at the front of its queue, all earlier ones having finished.
void Scheduler::CompleteFront(QueueId id, Time now, Actions& actions) {
  Queue& queue = queues_[id];
  const OpId op = queue.front;
  OpSlot& slot = pool_[op];
  actions.completed.push_back(op);
  ledger_.plans().RecordUnplanned(slot, now);
  queue.finished = slot.op.ticket;
  if (races_ != nullptr) races_->End(op);
  queue.front = queue.head = slot.next;
  if (queue.head == kNone) queue.tail = kNone;
  Advance(id, slot.op.ticket);
  Release(op, actions);
}

// A part that is offered occupies the rendezvous until its peers come, if ever: each user may have
// so many.
bool Scheduler::ChargePart(const Queue& queue, OpSlot& slot) {
  if (queue.account == nullptr || slot.part_charged) return true;
  slot.part_charged = queue.account->TryCharge(Resource::kParts);
  return slot.part_charged;
}

void Scheduler::ReleasePart(OpSlot& slot) {
  if (!slot.part_charged) return;
  slot.part_charged = false;
  queues_[slot.queue].account->Release(Resource::kParts);
  if (parts_stalled()) readiness_.Touch(lists_[kStalled].first);
}

// To the end of `list`: what it may take next is what has been there longest.
void Scheduler::PutOn(uint8_t to, QueueId id) {
  TakeOff(id);
  Queue& queue = queues_[id];
  List& list = lists_[to];
  queue.list = to;
  queue.previous = list.last;
  queue.next = kNone;
  (list.last == kNone ? list.first : queues_[list.last].next) = id;
  list.last = id;
  if (to < kStalled) ++ready_count_;
}

void Scheduler::TakeOff(QueueId id) {
  Queue& queue = queues_[id];
  if (queue.list == kNoList) return;
  List& list = lists_[queue.list];
  (queue.previous == kNone ? list.first : queues_[queue.previous].next) = queue.next;
  (queue.next == kNone ? list.last : queues_[queue.next].previous) = queue.previous;
  if (queue.list < kStalled) --ready_count_;
  queue.list = kNoList;
}

}  // namespace concert::daemon
