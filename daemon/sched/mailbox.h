// A bounded multi-producer, single-consumer queue of plain messages with a way to sleep: how
// threads that own different state talk. Pushing never blocks and makes a system call only when the
// consumer sleeps.
#ifndef CONCERT_DAEMON_SCHED_MAILBOX_H_
#define CONCERT_DAEMON_SCHED_MAILBOX_H_

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "absl/base/optimization.h"
#include "daemon/check.h"

namespace concert::daemon {

// D. Vyukov's bounded queue (1024cores.net, "Bounded MPMC queue"), with one consumer. A cell's
// sequence is `position` when free, position + 1 when full.
template <typename T>
class Mailbox {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // REQUIRES: capacity is a power of two.
  explicit Mailbox(uint32_t capacity)
      : mask_(capacity - 1),
        cells_(new Cell[capacity]),
        wake_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    CONCERT_CHECK(capacity > 0 && (capacity & mask_) == 0);
    CONCERT_CHECK(wake_fd_ >= 0);
    for (uint32_t i = 0; i < capacity; ++i) cells_[i].sequence.store(i, std::memory_order_relaxed);
  }
  ~Mailbox() { close(wake_fd_); }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // False if the mailbox is full. Any thread.
  bool TryPush(const T& message) {
    if (!Push(message)) return false;
    Wake();
    return true;
  }
  // The same for what is of no use to a consumer that sleeps: it finds the message when something
  // else wakes it.
  bool TryPushQuietly(const T& message) { return Push(message); }

  // Whether `count` more messages fit, as of a moment ago. Any thread.
  bool HasRoom(uint32_t count) const {
    // Cells are freed in order: if the last of them is free, all are.
    const uint64_t last = tail_.load(std::memory_order_relaxed) + count - 1;
    return cells_[last & mask_].sequence.load(std::memory_order_relaxed) == last;
  }

  // False if the mailbox is empty. Consumer thread only.
  bool TryPop(T& message) {
    Cell& cell = cells_[head_ & mask_];
    if (cell.sequence.load(std::memory_order_acquire) != head_ + 1) return false;
    message = cell.message;
    cell.sequence.store(head_ + mask_ + 1, std::memory_order_release);
    ++head_;
    return true;
  }

  // Consumer thread only: PrepareSleep(); then, if empty() and nothing else is due, wait for
  // wake_fd() to become readable; then FinishSleep().
  void PrepareSleep() {
    sleeping_.store(true, std::memory_order_relaxed);
    // Full fence: pairs with the one in Wake(). Either the consumer sees the message or the
    // producer sees that it sleeps.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  void FinishSleep() {
    sleeping_.store(false, std::memory_order_relaxed);
    uint64_t ignored;
    while (read(wake_fd_, &ignored, sizeof(ignored)) > 0) {
    }
  }
  bool empty() const {
    return cells_[head_ & mask_].sequence.load(std::memory_order_acquire) != head_ + 1;
  }
  int wake_fd() const { return wake_fd_; }

 private:
  struct Cell {
    std::atomic<uint64_t> sequence;
    T message;
  };

  bool Push(const T& message) {
    uint64_t position = tail_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[position & mask_];
      // Acquire: pairs with TryPop's release, so that the old message has been copied out.
      const uint64_t sequence = cell.sequence.load(std::memory_order_acquire);
      if (sequence == position) {
        if (tail_.compare_exchange_weak(position, position + 1, std::memory_order_relaxed)) {
          cell.message = message;
          // Release: pairs with TryPop's acquire.
          cell.sequence.store(position + 1, std::memory_order_release);
          return true;
        }
      } else if (sequence < position) {
        return false;
      } else {
        position = tail_.load(std::memory_order_relaxed);
      }
    }
  }

  void Wake() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (ABSL_PREDICT_FALSE(sleeping_.load(std::memory_order_relaxed))) {
      const uint64_t one = 1;
      // EAGAIN means that the counter is at its maximum, so the consumer is awake anyway.
      [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
    }
  }

  const uint64_t mask_;
  const std::unique_ptr<Cell[]> cells_;
  const int wake_fd_;
  alignas(ABSL_CACHELINE_SIZE) std::atomic<uint64_t> tail_{0};  // producers
  alignas(ABSL_CACHELINE_SIZE) uint64_t head_ = 0;              // consumer
  std::atomic<bool> sleeping_{false};
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_MAILBOX_H_
