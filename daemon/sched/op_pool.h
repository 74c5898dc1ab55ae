// Fixed storage for admitted ops. Memory is reserved once and touched only as far as it is used.
#ifndef CONCERT_DAEMON_SCHED_OP_POOL_H_
#define CONCERT_DAEMON_SCHED_OP_POOL_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <new>

#include "daemon/check.h"
#include "daemon/sched/hazards.h"
#include "kernels/failure.h"
#include "kernels/inline_list.h"
#include "kernels/op.h"
#include "policies/seam/lanes.h"

namespace concert::daemon {

using OpId = uint32_t;
using QueueId = uint32_t;  // a slot of the scheduler's queue table
inline constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

enum class OpState : uint8_t {
  kQueued,    // in its queue, not launched
  kReady,     // on the ready list
  kOffered,   // a collective's part, given to the rendezvous
  kLaunched,  // enqueued on the device
};

// An op and what the scheduler knows of it.
struct OpSlot {
  // A wait on a queue of the same scheduler: it can be paid on the device.
  struct LocalWait {
    QueueId queue;
    uint64_t value;
    uint8_t index = 0;  // into op.waits
  };

  kernels::Op op{kernels::Op::ArgumentsFollow()};
  kernels::Failure failure;  // not ok: the op will not run, or did not run well
  QueueId queue = kNone;
  OpId next = kNone;  // in its queue
  OpState state = OpState::kQueued;
  bool part_charged = false;  // its user's account holds it under Resource::kParts
  bool may_launch = true;     // false: failed before launch; it only waits for its turn to complete
  uint8_t watched_waits =
      0;  // bit i: op.waits[i] is watched by the dispatcher and not yet satisfied
  // Index into op.waits of the one that outlasted its bound. If it is watched, the dispatcher fills
  // in what its word stands at.
  uint8_t timed_out_wait = CONCERT_MAX_WAITS;
  kernels::InlineList<LocalWait, CONCERT_MAX_WAITS> local_waits;
  policies::Priority priority = policies::Priority::kNormal;  // of its queue
  uint64_t admission = 0;  // counts all ops of the scheduler in the order of Submit
  uint64_t work_hash = 0;  // policies::HashWork(op.work)
  float solo_us = 0;       // predicted when it is launched or offered
  policies::Time admitted_at = 0, ready_at = 0;
  const kernels::Pass* pass = nullptr;  // of a run; once it is launched, whose use counts it

  // The Ledger's, from its launch or offer on.
  struct Flight {
    static constexpr uint16_t kUnlisted = 0xffff;
    policies::Lane lane = policies::kNoLane;
    uint16_t launch = 0;  // in the PlanBook
    uint16_t index_in_launch = 0;
    uint16_t reserved_sms = 0;       // of a collective; while it is offered, as expected
    uint16_t waiting = kUnlisted;    // of an offered part: its place in Ledger::waiting
    bool is_far = false;             // its end, or that of something before it (Ledger::IsFar)
    uint32_t clock_launch = 0;       // its launch in its lane's LaneClock
    uint64_t lane_launch = 0;        // which launch of its lane, counting from 1
    policies::Time launched_at = 0;  // or offered
    WritesInFlight::Slots writes;
  };
  Flight flight;
};

class OpPool {
 public:
  explicit OpPool(uint32_t capacity)
      : capacity_(capacity),
        storage_(
            static_cast<OpSlot*>(::operator new(sizeof(OpSlot) * capacity, std::align_val_t(64)))) {
  }
  ~OpPool() { ::operator delete(storage_, std::align_val_t(64)); }
  OpPool(const OpPool&) = delete;
  OpPool& operator=(const OpPool&) = delete;

  // kNone if the pool is exhausted.
  OpId Allocate() {
    OpId id;
    if (free_ != kNone) {
      id = free_;
      free_ = storage_[id].next;
    } else if (touched_ < capacity_) {
      id = touched_++;
    } else {
      return kNone;
    }
    ++used_;
    new (&storage_[id]) OpSlot;
    return id;
  }
  void Free(OpId id) {
    CONCERT_CHECK(used_ > 0);
    storage_[id].next = free_;
    free_ = id;
    --used_;
  }
  OpSlot& operator[](OpId id) { return storage_[id]; }
  const OpSlot& operator[](OpId id) const { return storage_[id]; }
  uint32_t used() const { return used_; }

 private:
  static_assert(std::is_trivially_destructible_v<OpSlot>);
  const uint32_t capacity_;
  OpSlot* const storage_;
  uint32_t touched_ = 0;  // slots [0, touched_) have been used
  uint32_t used_ = 0;
  OpId free_ = kNone;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_OP_POOL_H_
