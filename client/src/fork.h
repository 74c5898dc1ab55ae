// fork(): a child has copies of its parent's handles, whose rings and sockets are still the
// parent's. Calls with them fail in the child; nothing that it does reaches the daemon.
#ifndef CONCERT_CLIENT_SRC_FORK_H_
#define CONCERT_CLIENT_SRC_FORK_H_

#include <atomic>
#include <cstdint>

#include "concert/concert.h"

namespace concert::client {

// How many forks lie between the process that connected first and this one. Only
// pthread_atfork's handler writes it, before the child has a second thread.
[[gnu::visibility("hidden")]] extern std::atomic<uint32_t> fork_generation;

// Where a handle was made.
class Origin {
 public:
  // Whether that was before the fork that made this process. Two loads, since it is asked at every
  // submit.
  bool forked() const { return generation_ != fork_generation.load(std::memory_order_relaxed); }

 private:
  const uint32_t generation_ = fork_generation.load(std::memory_order_relaxed);
};

// FAILED_PRECONDITION for a handle ("buffer") of the parent process.
[[gnu::cold, gnu::noinline]] int FailForked(const char* handle, concert_error* error);

// Begins to count forks, once; before the first handle is made. False if that is not possible.
bool WatchForks();

// While it lives, a child of fork() closes its copy of an fd, as a child may outlive its parent:
// the daemon takes a client for dead when the last copy of its socket is closed, and memory is
// freed when the last of its fds is.
class ClosedInChildren {
 public:
  ClosedInChildren() = default;
  // Of the fd that `make` returns, while no other thread forks; -1: of none.
  explicit ClosedInChildren(int (*make)());
  // Of one that is there already: a child that was forked since it was made keeps its copy.
  explicit ClosedInChildren(int fd);
  ClosedInChildren(ClosedInChildren&& other) noexcept;
  ClosedInChildren& operator=(ClosedInChildren&& other) noexcept;
  ~ClosedInChildren();

  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_FORK_H_
