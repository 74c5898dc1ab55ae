// Mutexes whose use clang checks (-Wthread-safety, `tests/run --clang`): a member that says which
// mutex guards it is touched only under that mutex, or the build fails. Here because daemon and
// client share no other room. Everything is for any thread.
//
// Around std::mutex, not absl::Mutex: the client links no absl, and the thread sanitizer cannot see
// into absl's when it comes from a package.
#ifndef CONCERT_PROTO_MUTEX_H_
#define CONCERT_PROTO_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define CONCERT_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define CONCERT_THREAD_SAFETY(attribute)
#endif

// A member that is read and written only by who holds `mutex`.
#define CONCERT_GUARDED_BY(mutex) CONCERT_THREAD_SAFETY(guarded_by(mutex))
// A function that its caller calls with, or without, `mutex` held.
#define CONCERT_REQUIRES(mutex) CONCERT_THREAD_SAFETY(requires_capability(mutex))
#define CONCERT_EXCLUDES(mutex) CONCERT_THREAD_SAFETY(locks_excluded(mutex))

namespace concert {

class CONCERT_THREAD_SAFETY(capability("mutex")) Mutex {
 public:
  void Lock() CONCERT_THREAD_SAFETY(acquire_capability()) { mutex_.lock(); }
  bool TryLock() CONCERT_THREAD_SAFETY(try_acquire_capability(true)) { return mutex_.try_lock(); }
  void Unlock() CONCERT_THREAD_SAFETY(release_capability()) { mutex_.unlock(); }
  // Does nothing but tell clang what it cannot see: that the caller's caller holds this.
  void AssertHeld() const CONCERT_THREAD_SAFETY(assert_capability(this)) {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds the mutex while it lives.
class CONCERT_THREAD_SAFETY(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) CONCERT_THREAD_SAFETY(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() CONCERT_THREAD_SAFETY(release_capability()) { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits may end without reason: call them in a loop that looks at what is waited for. They take no
// predicates, because clang takes a lambda for a function that holds nothing.
class CondVar {
 public:
  void NotifyOne() { changed_.notify_one(); }
  void NotifyAll() { changed_.notify_all(); }

  void Wait(Mutex& mutex) CONCERT_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }
  // False when `deadline` has passed.
  template <typename Clock, typename Duration>
  bool WaitUntil(Mutex& mutex, const std::chrono::time_point<Clock, Duration>& deadline)
      CONCERT_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const bool in_time = changed_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }

 private:
  std::condition_variable changed_;
};

}  // namespace concert

#endif  // CONCERT_PROTO_MUTEX_H_
