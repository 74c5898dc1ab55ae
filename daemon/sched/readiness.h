// Which queues have news: whose front op may be able to go on. A queue is examined when something
// happened to it, never because it exists:
//
//   Touch ──> examined ──(nothing is missing)──> the scheduler's ready list
//                 │
//                 └─(waits are unmet)─> Block ──(last wait met, out of time, unreachable)──> Touch
//
// Only fronts wait here, so a queue takes part with at most CONCERT_MAX_WAITS waits. Each is a node
// in the heap of the queue it waits for. What one event wakes is taken in portions (kWakesPerStep),
// so that thousands of waits for one value cost nobody a long step.
//
// Fixed storage that grows only in Add. Not thread-safe.
#ifndef CONCERT_DAEMON_SCHED_READINESS_H_
#define CONCERT_DAEMON_SCHED_READINESS_H_

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "daemon/quota/budget.h"
#include "daemon/sched/op_pool.h"
#include "daemon/sched/wait_heap.h"
#include "policies/seam/snapshot.h"

namespace concert::daemon {

class Readiness {
 public:
  using Time = policies::Time;
  static constexpr Time kNever = std::numeric_limits<Time>::max();
  // Waits met, and timed out, in one step; the rest have their turn in the next ones.
  static constexpr int kWakesPerStep = PerTurn<int>(Work::kQueueWaits);

  // `wait_timeout_ns`: how long a front may be blocked.
  Readiness(uint32_t max_queues, Time wait_timeout_ns);

  // The queue's counter of launched or ended ops stands at `reached`. REQUIRES: queue < max_queues;
  // if the slot was in use before, nothing waits for it any more.
  void Add(QueueId queue, uint64_t reached);

  // --- News ---

  // The queue is to be examined, in the order of touching.
  void Touch(QueueId queue);
  // The next queue to examine; kNone if none has news.
  QueueId Next();
  bool news() const { return touched_.first != kNone; }

  // --- Counters ---

  uint64_t reached(QueueId queue) const { return queues_[queue].reached; }
  // The counter has risen; fronts that waited for it are woken by the next steps.
  void Reach(QueueId queue, uint64_t value);
  // It will not rise any more: fronts that wait for more are woken, to fail.
  void Close(QueueId queue);
  bool closed(QueueId queue) const { return queues_[queue].closed; }

  // --- Blocked fronts ---

  struct Wait {
    QueueId queue;
    uint64_t value;
  };
  // The queue's front waits for these, none of which is met, and for `watched` words.
  // REQUIRES: not blocked; at most CONCERT_MAX_WAITS in all, at least one.
  void Block(QueueId queue, std::span<const Wait> waits, int watched, Time now);
  // One of the words has been reached.
  void WatchedMet(QueueId queue);
  // The front need not wait any more: it failed.
  void Unblock(QueueId queue);
  bool blocked(QueueId queue) const { return queues_[queue].unmet > 0; }
  // Of a blocked front: it has waited for its time.
  bool expired(QueueId queue) const { return queues_[queue].expired; }
  // Of a blocked front: it waits for a closed counter.
  bool unreachable(QueueId queue) const { return queues_[queue].unreachable; }

  // Wakes what is due: `limit` waits at most, and as many timeouts. Returns how many waits.
  int Wake(Time now, int limit = kWakesPerStep) {
    return waking() || next_timeout() <= now ? WakeDue(now, limit) : 0;
  }
  // Whether Wake has more to do now.
  bool waking() const { return due_.first != kNone; }
  // When the next front runs out of time; kNever.
  Time next_timeout() const {
    return timeouts_.first == kNone ? kNever
                                    : queues_[timeouts_.first].blocked_at + wait_timeout_ns_;
  }

 private:
  using Node = WaitHeap::Node;
  // Links of a queue in a FIFO list.
  struct Links {
    QueueId previous = kNone, next = kNone;
    bool listed = false;
  };
  struct Queue {
    // As what others wait for.
    Node waits = WaitHeap::kEmpty;
    uint64_t reached = 0;
    bool closed = false;
    // As what waits.
    bool expired = false, unreachable = false;
    uint8_t unmet = 0;
    uint8_t nodes = 0;  // bit i: node queue * CONCERT_MAX_WAITS + i is in a heap
    Time blocked_at = 0;
    Links touched, due, timeout;
  };
  // A list through one of the Links.
  struct List {
    Links Queue::*links;
    QueueId first = kNone, last = kNone;
  };

  void Append(List& list, QueueId queue);
  void Remove(List& list, QueueId queue);
  bool Due(const Queue& queue) const {
    return queue.waits != WaitHeap::kEmpty &&
           (queue.closed || heap_.value(queue.waits) <= queue.reached);
  }
  int WakeDue(Time now, int limit);
  int WakeFirst(QueueId queue, int budget);

  const Time wait_timeout_ns_;
  WaitHeap heap_;
  std::vector<Queue> queues_;
  List touched_{&Queue::touched}, due_{&Queue::due}, timeouts_{&Queue::timeout};
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_READINESS_H_
