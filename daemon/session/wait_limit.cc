#include "daemon/session/wait_limit.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/check.h"

namespace concert::daemon {
namespace {

constexpr int kSignal = SIGURG;  // ignored where nobody asks for it

}  // namespace

WaitLimit::WaitLimit() {
  struct sigaction nothing {};
  nothing.sa_handler = [](int) {};
  nothing.sa_flags = SA_RESTART;
  sigset_t unblocked;
  sigemptyset(&unblocked);
  sigaddset(&unblocked, kSignal);
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = kSignal;
  event._sigev_un._tid =
      static_cast<pid_t>(syscall(SYS_gettid));  // no name for it before glibc 2.37
  CONCERT_CHECK(sigaction(kSignal, &nothing, nullptr) == 0 &&
                pthread_sigmask(SIG_UNBLOCK, &unblocked, nullptr) == 0 &&
                timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0);
}

WaitLimit::~WaitLimit() { timer_delete(timer_); }

void WaitLimit::Signal(long every_ns) {
  const timespec every{.tv_sec = 0, .tv_nsec = every_ns};
  const itimerspec times{.it_interval = every, .it_value = every};
  CONCERT_CHECK(timer_settime(timer_, 0, &times, nullptr) == 0);
}

}  // namespace concert::daemon
