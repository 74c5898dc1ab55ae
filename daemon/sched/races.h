// Missing waits: two ops of a session in flight, in different queues, that touch the same bytes,
// one of them writing, and that nothing orders. A GPU runs them side by side and computes something
// else each time; the simulator, which runs one op after the other, would hide it. So the check is
// made there.
//
// What is reported is true: where the order of two ops is not known, nothing is said. An op's clock
// names, for each queue, the last op that it is ordered behind: the ops it follows directly, its
// queue's last and those it waits for, and all that is in their clocks. An op is *opaque* when its
// clock cannot say all: it waits for words that others write (user timelines, other GPUs) or for an
// op that is not there yet, was refused with its waits, or is behind a collective, which is behind
// the other ranks' ops, too. So is what follows an opaque op. An opaque op is never the later one
// of a race, and the earlier one only when it is launched or offered: whatever comes now comes
// after what it waited for.
//
// Fixed storage. An op is compared with those of its session's other queues that its clock does not
// name, which nearly always are few: it costs a microsecond, and some twenty at most, whatever its
// client sends. Not thread-safe.
#ifndef CONCERT_DAEMON_SCHED_RACES_H_
#define CONCERT_DAEMON_SCHED_RACES_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "daemon/sched/op_pool.h"
#include "kernels/access.h"

namespace concert::daemon {

class Races {
 public:
  // Other queues that one clock can name; an op behind unfinished ops of more is opaque.
  static constexpr int kMaxClock = 32;
  // Ops that one is compared with, the newest of each queue first: all that a session may have
  // admitted and unfinished.
  static constexpr int kMaxComparisons = 256;
  // Of these, such as have bounds that overlap and are compared to the byte; and what all of that
  // may take (kernels/strided_range.h). Beyond, nothing is found.
  static constexpr int kMaxCloseLooks = 16;
  static constexpr int kMaxPieces = 1024;

  struct Race {
    OpId earlier = kNone, later = kNone;  // as they were submitted
    kernels::Access earlier_access, later_access;
    kernels::ByteRange bytes;  // that hold what they share
  };

  // `pool`, of at most `max_ops`, outlives this.
  Races(const OpPool& pool, uint32_t max_ops, uint32_t max_queues);

  // The op is in its queue (OpSlot::queue and admission are set), behind `direct`: the unfinished
  // ops that it must follow, which are known here. `opaque`: it waits for something else, too.
  // `session` < max_queues: the same for all queues of a session, and for no others with ops in
  // flight.
  void Submit(OpId op, uint32_t session, std::span<const OpId> direct, bool opaque);
  // The op has ended, after those before it in its queue. REQUIRES: it has been checked.
  void End(OpId op);

  // Whether ops have been submitted that Next has not checked.
  bool unchecked() const { return unchecked_.first != kNone; }
  // Checks them, oldest first, until one is the later of a race: then true, once for an op. `ended`
  // says of an op in flight that its client may have seen its end.
  bool Next(absl::FunctionRef<bool(const OpSlot&)> ended, Race& race);

 private:
  // A queue's op, by number: admissions only grow, while a queue's slot is used again and its
  // tickets begin anew.
  struct Tick {
    QueueId queue;
    uint64_t admission;
  };
  // Of an op in flight. No initialisers: memory is touched only as far as it is used.
  struct Record {
    OpId newer, older;  // in its queue
    OpId next_unchecked;
    bool opaque;
    uint64_t admission;  // the pool's, where the rest is that ops are compared by
    // Bounds of what it writes, and of its operands.
    kernels::ByteRange written;
    kernels::InlineList<kernels::ByteRange, kernels::kMaxOperands> touched;
    kernels::InlineList<Tick, kMaxClock> clock;
  };
  // With ops in flight it is in the list of its session's.
  struct Queue {
    OpId newest = kNone;
    uint32_t session = 0;
    QueueId newer = kNone, older = kNone;  // in that list
    uint64_t ended = 0;                    // admission of its last op that has ended
  };
  // For what races with one op.
  struct Search {
    int comparisons = kMaxComparisons, close_looks = kMaxCloseLooks, pieces = kMaxPieces;  // left
    uint64_t nearest = 0;        // admission of the newest that was found; 0: none was
    kernels::Accesses accesses;  // of the op, from the first close look on
  };
  struct List {
    OpId first = kNone, last = kNone;
  };

  void AddToQueue(OpId op, uint32_t session);
  void SetBounds(OpId op);
  void Follow(OpId op, OpId direct);
  void Advance(OpId op, const Tick& tick);
  uint64_t OrderedUpTo(QueueId queue, OpId later) const;
  bool Near(OpId a, OpId b) const;
  bool MayRace(OpId op) const;
  bool Check(OpId later, absl::FunctionRef<bool(const OpSlot&)> ended, Race& race) const;
  void CheckQueue(QueueId queue, OpId later, absl::FunctionRef<bool(const OpSlot&)> ended,
                  Search& search, Race& race) const;

  const OpPool& pool_;
  const std::unique_ptr<Record[]> records_;  // by OpId
  std::vector<Queue> queues_;
  std::vector<QueueId> newest_queue_;  // by session: the last that got its first op
  List unchecked_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_RACES_H_
