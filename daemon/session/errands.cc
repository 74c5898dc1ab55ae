#include "daemon/session/errands.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/check.h"

namespace concert::daemon {
namespace {

// A tenth of the CPU beside a thread that wants all of it: enough to come to an end, and threads
// that wake take the CPU at once.
constexpr int kNiceLevel = 10;

}  // namespace

Errands::Errands()
    : wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), thread_(&Errands::Run, this) {
  CONCERT_CHECK(wake_fd_.get() >= 0);
}

Errands::~Errands() {
  CONCERT_CHECK(!busy());
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    begun_.NotifyOne();
  }
  thread_.join();
}

void Errands::Start(absl::AnyInvocable<void()> work, absl::AnyInvocable<void()> finish) {
  CONCERT_CHECK(!busy());
  finish_ = std::move(finish);
  const MutexLock lock(mutex_);
  work_ = std::move(work);
  begun_.NotifyOne();
}

void Errands::Finish() {
  if (!ended_.load(std::memory_order_acquire)) return;
  // The thread's write may be still to come: after Finish, it would leave the descriptor readable
  // and the control thread awake until another errand ends.
  eventfd_t ignored;
  if (eventfd_read(wake_fd_.get(), &ignored) != 0) return;
  ended_.store(false, std::memory_order_relaxed);
  std::exchange(finish_, nullptr)();
}

void Errands::Run() {
  pthread_setname_np(pthread_self(), "errands");
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNiceLevel);
  for (;;) {
    absl::AnyInvocable<void()> work;
    {
      const MutexLock lock(mutex_);
      while (work_ == nullptr && !stop_) begun_.Wait(mutex_);
      if (stop_) return;
      work = std::exchange(work_, nullptr);
    }
    work();
    work = nullptr;  // what it holds, before anybody finishes
    ended_.store(true, std::memory_order_release);
    eventfd_write(wake_fd_.get(), 1);
  }
}

}  // namespace concert::daemon
