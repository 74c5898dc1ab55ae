#include "client/src/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "client/src/failure.h"
#include "proto/mutex.h"

namespace concert::client {

std::atomic<uint32_t> fork_generation{0};

namespace {

struct OpenFds {
  Mutex mutex;
  std::vector<int> fds CONCERT_GUARDED_BY(mutex);
};

// Never destroyed: a program may fork while its statics are.
OpenFds& Open() {
  static OpenFds* const open = new OpenFds;
  return *open;
}

// The list is whole in the child, because no other thread changes it during a fork. clang cannot
// follow a mutex from one handler to the next.
CONCERT_THREAD_SAFETY(no_thread_safety_analysis)
void BeforeFork() { Open().mutex.Lock(); }
CONCERT_THREAD_SAFETY(no_thread_safety_analysis)
void AfterForkInParent() { Open().mutex.Unlock(); }
CONCERT_THREAD_SAFETY(no_thread_safety_analysis)
void AfterForkInChild() {
  fork_generation.fetch_add(1, std::memory_order_relaxed);
  for (const int fd : Open().fds) close(fd);
  Open().fds.clear();
  Open().mutex.Unlock();
}

}  // namespace

int FailForked(const char* handle, concert_error* error) {
  return Fail(error, CONCERT_FAILED_PRECONDITION,
              "the %s was made before fork(), and only the process that made it may use it; "
              "connect again in this one (process %d)",
              handle, static_cast<int>(getpid()));
}

bool WatchForks() {
  static const bool watching = pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild) == 0;
  return watching;
}

ClosedInChildren::ClosedInChildren(int (*make)()) {
  const MutexLock lock(Open().mutex);
  fd_ = make();
  if (fd_ >= 0) Open().fds.push_back(fd_);
}

ClosedInChildren::ClosedInChildren(int fd) : fd_(fd) {
  const MutexLock lock(Open().mutex);
  if (fd_ >= 0) Open().fds.push_back(fd_);
}

ClosedInChildren::ClosedInChildren(ClosedInChildren&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)) {}

ClosedInChildren& ClosedInChildren::operator=(ClosedInChildren&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

ClosedInChildren::~ClosedInChildren() {
  if (fd_ < 0) return;
  const MutexLock lock(Open().mutex);
  std::vector<int>& fds = Open().fds;
  const auto found = std::find(fds.begin(), fds.end(), fd_);
  if (found != fds.end()) fds.erase(found);
}

}  // namespace concert::client
