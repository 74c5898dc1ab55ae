// The two shared-memory regions of a session, daemon side: made, sealed, mapped and laid out as
// proto/ring/ring_abi.h says. Pointers into the client region are read-only and what they point at
// may change at any moment: copy, then check the copy.
#ifndef CONCERT_DAEMON_SESSION_SESSION_MEMORY_H_
#define CONCERT_DAEMON_SESSION_SESSION_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "daemon/config/defaults.h"
#include "kernels/failure.h"
#include "proto/ring/ring_abi.h"

namespace concert::daemon {

class SessionMemory {
 public:
  struct Options {
    uint32_t session = 0;
    uint64_t features = 0;
    uint32_t ring_capacity = defaults::kRingCapacity;  // a power of two
    std::span<const int> gpus;                         // one ring each, at most CONCERT_MAX_RINGS
  };

  static absl::StatusOr<std::unique_ptr<SessionMemory>> Create(const Options& options);
  ~SessionMemory();
  SessionMemory(const SessionMemory&) = delete;
  SessionMemory& operator=(const SessionMemory&) = delete;

  const concert_layout& layout() const { return layout_; }
  // To be sent to the client; closed by CloseFds once it has them. -1 afterwards.
  int client_fd() const { return client_fd_; }
  int daemon_fd() const { return daemon_fd_; }
  void CloseFds();

  // Client region.
  const concert_submit_control& submit_control(uint32_t ring) const {
    return reinterpret_cast<const concert_submit_control*>(client_)[ring];
  }
  const concert_descriptor* descriptors(uint32_t ring) const {
    return reinterpret_cast<const concert_descriptor*>(client_ +
                                                       layout_.rings[ring].descriptors_offset);
  }
  const uint32_t& waiters(uint32_t queue) const {
    return reinterpret_cast<const uint32_t*>(client_ + layout_.waiters_offset)[queue];
  }
  const uint64_t& user_timeline(uint32_t index) const {
    return reinterpret_cast<const concert_timeline*>(client_ + layout_.user_timelines_offset)[index]
        .value;
  }

  // Daemon region.
  concert_session_page& page() const { return *reinterpret_cast<concert_session_page*>(daemon_); }
  concert_ring_state& ring_state(uint32_t ring) const {
    return reinterpret_cast<concert_ring_state*>(daemon_ + layout_.ring_states_offset)[ring];
  }
  concert_completion* completions(uint32_t ring) const {
    return reinterpret_cast<concert_completion*>(daemon_ + layout_.rings[ring].completions_offset);
  }
  uint64_t& timeline(uint32_t queue) const {
    return reinterpret_cast<concert_timeline*>(daemon_ + layout_.timelines_offset)[queue].value;
  }
  // The page-aligned range of all queue timelines, for Node::RegisterHostMemory.
  void* timelines() const { return daemon_ + layout_.timelines_offset; }
  uint64_t timelines_bytes() const {
    return uint64_t{layout_.max_queues} * sizeof(concert_timeline);
  }

  // Tells the client that the session is over and why; it also sees the socket close.
  void MarkClosed(const kernels::Failure& why);
  void MarkDraining();

 private:
  SessionMemory() = default;

  concert_layout layout_{};
  int client_fd_ = -1, daemon_fd_ = -1;
  char* client_ = nullptr;
  char* daemon_ = nullptr;
};

// Loads from and stores to shared memory. The other side is another process, so each is a lock-free
// atomic.
template <typename T>
T LoadAcquire(const T& word) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(std::memory_order_acquire);
}
template <typename T>
T LoadRelaxed(const T& word) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(std::memory_order_relaxed);
}
template <typename T>
void StoreRelease(T& word, T value) {
  std::atomic_ref<T>(word).store(value, std::memory_order_release);
}
static_assert(std::atomic_ref<uint64_t>::is_always_lock_free);

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_SESSION_MEMORY_H_
