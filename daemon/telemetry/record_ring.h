// A bounded ring of Records from one dispatcher to the telemetry thread. Pushing never waits: when
// the reader has fallen behind, the record is dropped and counted.
//
// Threads: Push belongs to one producer, Drain to one consumer at a time; dropped() and empty() to
// anyone.
//
// Memory ordering: the producer fills a slot, then stores tail_ (release); the consumer loads tail_
// (acquire) before it reads the slot. The consumer reads a slot, then stores head_ (release); the
// producer loads head_ (acquire) before it reuses the slot. The producer keeps a copy of head_ and
// reloads it only when the ring looks full, so that a push normally touches no line that the
// consumer writes.
#ifndef CONCERT_DAEMON_TELEMETRY_RECORD_RING_H_
#define CONCERT_DAEMON_TELEMETRY_RECORD_RING_H_

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/telemetry/records.h"

namespace concert::daemon {

class RecordRing {
 public:
  // At 100,000 records/s this holds what comes in 80 ms, more than the telemetry thread's longest
  // pause. A record is about 1 KiB.
  static constexpr size_t kDefaultCapacity = 8192;

  // `gpu` marks every record; `capacity` is rounded up to a power of two.
  explicit RecordRing(uint8_t gpu, size_t capacity = kDefaultCapacity)
      : gpu_(gpu), slots_(std::bit_ceil(capacity)), mask_(slots_.size() - 1) {}
  RecordRing(const RecordRing&) = delete;
  RecordRing& operator=(const RecordRing&) = delete;

  // False if the ring was full and the record was dropped.
  bool Push(const OpRecord& op) {
    Record* slot = Claim();
    if (slot == nullptr) return false;
    slot->type = Record::Type::kOp;
    slot->op = op;
    Publish();
    return true;
  }
  bool Push(const PlanRecord& plan) {
    Record* slot = Claim();
    if (slot == nullptr) return false;
    slot->type = Record::Type::kPlan;
    slot->plan = plan;
    Publish();
    return true;
  }

  // Calls `consume(const Record&)` for each record that was there at the call, oldest first.
  // Returns how many.
  template <typename Consume>
  size_t Drain(Consume&& consume) {
    const uint64_t tail = tail_.load(std::memory_order_acquire);
    uint64_t head = head_.load(std::memory_order_relaxed);
    const size_t count = tail - head;
    for (; head != tail; ++head) {
      consume(static_cast<const Record&>(slots_[head & mask_]));
      head_.store(head + 1, std::memory_order_release);
    }
    return count;
  }

  size_t capacity() const { return slots_.size(); }
  uint8_t gpu() const { return gpu_; }
  // Records lost so far.
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  Record* Claim() {
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_seen_ == slots_.size()) {
      head_seen_ = head_.load(std::memory_order_acquire);
      if (tail - head_seen_ == slots_.size()) {
        // Only the producer writes it, so that a plain add will do.
        dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        return nullptr;
      }
    }
    Record* slot = &slots_[tail & mask_];
    slot->gpu = gpu_;
    return slot;
  }
  void Publish() {
    tail_.store(tail_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  const uint8_t gpu_;
  std::vector<Record> slots_;
  const uint64_t mask_;
  alignas(64) std::atomic<uint64_t> tail_{0};  // written by the producer
  uint64_t head_seen_ = 0;                     // the producer's copy of head_
  std::atomic<uint64_t> dropped_{0};
  alignas(64) std::atomic<uint64_t> head_{0};  // written by the consumer
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TELEMETRY_RECORD_RING_H_
