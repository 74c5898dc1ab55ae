// Bounded rings of records from one dispatcher to the telemetry thread. Pushing never waits: when
// the reader has fallen behind, the record is dropped and counted.
//
// Threads: Push belongs to one producer, Drain to one consumer at a time; dropped() to anyone.
#ifndef CONCERT_DAEMON_TELEMETRY_RECORD_RING_H_
#define CONCERT_DAEMON_TELEMETRY_RECORD_RING_H_

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/telemetry/records.h"

namespace concert::daemon {

// Records of one type.
//
// Memory ordering: the producer fills a slot, then stores tail_ (release); the consumer loads tail_
// (acquire) before it reads the slot. The consumer reads a slot, then stores head_ (release); the
// producer loads head_ (acquire) before it reuses the slot. The producer keeps a copy of head_ and
// reloads it only when the ring looks full, so that a push normally touches no line that the
// consumer writes.
template <typename T>
class RingOf {
 public:
  // `capacity` is rounded up to a power of two.
  explicit RingOf(size_t capacity) : slots_(std::bit_ceil(capacity)), mask_(slots_.size() - 1) {}
  RingOf(const RingOf&) = delete;
  RingOf& operator=(const RingOf&) = delete;

  // False if the ring was full and the record was dropped.
  bool Push(const T& record) {
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_seen_ == slots_.size()) {
      head_seen_ = head_.load(std::memory_order_acquire);
      if (tail - head_seen_ == slots_.size()) {
        // Only the producer writes it, so that a plain add will do.
        dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        return false;
      }
    }
    slots_[tail & mask_] = record;
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }

  // Calls `consume` for each record that was there at the call, oldest first. Returns how many.
  template <typename Consume>
  size_t Drain(Consume&& consume) {
    const uint64_t tail = tail_.load(std::memory_order_acquire);
    uint64_t head = head_.load(std::memory_order_relaxed);
    const size_t count = tail - head;
    for (; head != tail; ++head) {
      consume(static_cast<const T&>(slots_[head & mask_]));
      head_.store(head + 1, std::memory_order_release);
    }
    return count;
  }

  size_t capacity() const { return slots_.size(); }
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  std::vector<T> slots_;
  const uint64_t mask_;
  alignas(64) std::atomic<uint64_t> tail_{0};  // written by the producer
  uint64_t head_seen_ = 0;                     // the producer's copy of head_
  std::atomic<uint64_t> dropped_{0};
  alignas(64) std::atomic<uint64_t> head_{0};  // written by the consumer
};

// Ops and plans in rings of their own: in slots that hold either, an op's 112 bytes would lie far
// from the next one's, and handing them over took 11 % of a dispatcher's time (dispatch_benchmark,
// lora_x8/4_batches).
class RecordRing {
 public:
  // What comes in 7 ms at 1.2 million ops/s (ring_benchmark, `auto`, on an H200's host); a busy
  // telemetry thread pauses for 5.
  static constexpr size_t kDefaultCapacity = 8192;
  static constexpr size_t kOpsPerPlan = 4;

  // For `capacity` ops and a quarter of as many plans.
  explicit RecordRing(uint8_t gpu, size_t capacity = kDefaultCapacity)
      : gpu_(gpu), ops_(capacity), plans_(std::max<size_t>(1, capacity / kOpsPerPlan)) {}

  bool Push(const OpRecord& op) { return ops_.Push(op); }
  bool Push(const PlanRecord& plan) { return plans_.Push(plan); }

  // Calls `consume`, which takes either, for each record that was there at the call: first the ops,
  // then the plans, each oldest first. Returns how many.
  template <typename Consume>
  size_t Drain(Consume&& consume) {
    const size_t ops = ops_.Drain(consume);
    return ops + plans_.Drain(consume);
  }

  uint8_t gpu() const { return gpu_; }
  // Records lost so far.
  uint64_t dropped() const { return ops_.dropped() + plans_.dropped(); }

 private:
  const uint8_t gpu_;
  RingOf<OpRecord> ops_;
  RingOf<PlanRecord> plans_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TELEMETRY_RECORD_RING_H_
