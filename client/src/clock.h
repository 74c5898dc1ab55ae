// Bounds of waits, on the steady clock.
#ifndef CONCERT_CLIENT_SRC_CLOCK_H_
#define CONCERT_CLIENT_SRC_CLOCK_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

namespace concert::client {

inline int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Deadline {
 public:
  // timeout_ns < 0: never.
  explicit Deadline(int64_t timeout_ns) {
    const int64_t now = NowNs();
    const bool never = timeout_ns < 0 || timeout_ns > kNever - now;
    at_ns_ = never ? kNever : now + timeout_ns;
  }
  // Nanoseconds to go, at most `limit`, at least 0.
  int64_t Left(int64_t limit) const {
    return at_ns_ == kNever ? limit : std::clamp<int64_t>(at_ns_ - NowNs(), 0, limit);
  }
  bool passed() const { return at_ns_ != kNever && NowNs() >= at_ns_; }

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  int64_t at_ns_;
};

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_CLOCK_H_
