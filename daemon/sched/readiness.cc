#include "daemon/sched/readiness.h"

#include <algorithm>
#include <bit>

#include "daemon/check.h"

namespace concert::daemon {
namespace {

constexpr int kWakesPerVisit = 8;  // of one counter before the next one's turn

}  // namespace

Readiness::Readiness(uint32_t max_queues, Time wait_timeout_ns)
    : wait_timeout_ns_(wait_timeout_ns), heap_(size_t{max_queues} * CONCERT_MAX_WAITS) {}

void Readiness::Add(QueueId id, uint64_t reached) {
  if (queues_.size() <= id) queues_.resize(id + 1);
  Queue& queue = queues_[id];
  CONCERT_CHECK(queue.waits == WaitHeap::kEmpty && queue.unmet == 0);
  // Lists may still name the slot; an examination without cause changes nothing.
  queue.reached = reached;
  queue.closed = false;
}

void Readiness::Append(List& list, QueueId id) {
  Links& links = queues_[id].*list.links;
  if (links.listed) return;
  links = {.previous = list.last, .next = kNone, .listed = true};
  (list.last == kNone ? list.first : (queues_[list.last].*list.links).next) = id;
  list.last = id;
}

void Readiness::Remove(List& list, QueueId id) {
  Links& links = queues_[id].*list.links;
  if (!links.listed) return;
  (links.previous == kNone ? list.first : (queues_[links.previous].*list.links).next) = links.next;
  (links.next == kNone ? list.last : (queues_[links.next].*list.links).previous) = links.previous;
  links.listed = false;
}

void Readiness::Touch(QueueId id) { Append(touched_, id); }

QueueId Readiness::Next() {
  const QueueId id = touched_.first;
  if (id != kNone) Remove(touched_, id);
  return id;
}

void Readiness::Reach(QueueId id, uint64_t value) {
  Queue& queue = queues_[id];
  if (value <= queue.reached) return;
  queue.reached = value;
  if (Due(queue)) Append(due_, id);
}

void Readiness::Close(QueueId id) {
  queues_[id].closed = true;
  if (Due(queues_[id])) Append(due_, id);
}

void Readiness::Block(QueueId id, std::span<const Wait> waits, int watched, Time now) {
  Queue& queue = queues_[id];
  CONCERT_CHECK(queue.unmet == 0 && queue.nodes == 0);
  queue.unmet = static_cast<uint8_t>(waits.size() + static_cast<size_t>(watched));
  CONCERT_CHECK(queue.unmet > 0 && queue.unmet <= CONCERT_MAX_WAITS);
  Node node = id * CONCERT_MAX_WAITS;
  for (const Wait& wait : waits) {
    heap_.Insert(queues_[wait.queue].waits, node++, wait.value, wait.queue);
  }
  queue.nodes = static_cast<uint8_t>((1u << waits.size()) - 1);
  queue.blocked_at = now;
  Append(timeouts_, id);
}

void Readiness::WatchedMet(QueueId id) {
  Queue& queue = queues_[id];
  CONCERT_CHECK(queue.unmet > 0);
  if (--queue.unmet > 0) return;
  Unblock(id);
  Touch(id);
}

void Readiness::Unblock(QueueId id) {
  Queue& queue = queues_[id];
  for (; queue.nodes != 0; queue.nodes &= static_cast<uint8_t>(queue.nodes - 1)) {
    const Node node = id * CONCERT_MAX_WAITS + static_cast<Node>(std::countr_zero(queue.nodes));
    heap_.Remove(queues_[heap_.owner(node)].waits, node);
  }
  queue.unmet = 0;
  queue.expired = queue.unreachable = false;
  Remove(timeouts_, id);
}

// Takes waits that are met, or never will be, off the queue. Returns how many.
int Readiness::WakeFirst(QueueId id, int budget) {
  Queue& queue = queues_[id];
  int woken = 0;
  for (; woken < budget && Due(queue); ++woken) {
    const Node node = queue.waits;
    const bool met = heap_.value(node) <= queue.reached;
    heap_.Remove(queue.waits, node);
    const QueueId waiting_id = node / CONCERT_MAX_WAITS;
    Queue& waiting = queues_[waiting_id];
    waiting.nodes &= static_cast<uint8_t>(~(1u << node % CONCERT_MAX_WAITS));
    if (!met) {
      waiting.unreachable = true;  // and stays blocked until it has failed
      Touch(waiting_id);
    } else if (--waiting.unmet == 0) {
      Unblock(waiting_id);
      Touch(waiting_id);
    }
  }
  return woken;
}

int Readiness::WakeDue(Time now, int limit) {
  int budget = limit;
  while (due_.first != kNone && budget > 0) {
    const QueueId id = due_.first;
    budget -= WakeFirst(id, std::min(budget, kWakesPerVisit));
    Remove(due_, id);
    if (Due(queues_[id])) Append(due_, id);  // the others' turn
  }
  // One bound for all, so the list is in the order of the timeouts.
  for (int timeouts = limit; next_timeout() <= now && timeouts > 0; --timeouts) {
    const QueueId id = timeouts_.first;
    Remove(timeouts_, id);
    queues_[id].expired = true;
    Touch(id);
  }
  return limit - budget;
}

}  // namespace concert::daemon
