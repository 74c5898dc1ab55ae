// A mutex for who may have to wait for another process while he has it: nobody waits longer for it
// than he says.
#ifndef CONCERT_CLIENT_SRC_TURN_H_
#define CONCERT_CLIENT_SRC_TURN_H_

#include <chrono>
#include <cstdint>

#include "client/src/clock.h"
#include "proto/mutex.h"

namespace concert::client {

class CONCERT_THREAD_SAFETY(capability("turn")) Turn {
 public:
  // False when the deadline has passed first.
  bool Take(const Deadline& deadline) CONCERT_THREAD_SAFETY(try_acquire_capability(true)) {
    constexpr int64_t kLookNs = 1'000'000'000;  // no bound of it is longer in one step
    const MutexLock lock(mutex_);
    while (taken_ && !deadline.passed()) {
      const std::chrono::nanoseconds left(deadline.Left(kLookNs));
      given_back_.WaitUntil(mutex_, std::chrono::steady_clock::now() + left);
    }
    return TakeFree();
  }
  bool TryTake() CONCERT_THREAD_SAFETY(try_acquire_capability(true)) {
    const MutexLock lock(mutex_);
    return TakeFree();
  }
  void GiveBack() CONCERT_THREAD_SAFETY(release_capability()) {
    const MutexLock lock(mutex_);
    taken_ = false;
    given_back_.NotifyOne();
  }

 private:
  bool TakeFree() CONCERT_REQUIRES(mutex_) {
    const bool free = !taken_;
    taken_ = true;
    return free;
  }

  Mutex mutex_;
  CondVar given_back_;
  bool taken_ CONCERT_GUARDED_BY(mutex_) = false;
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_TURN_H_
