// Waiting: for a queue's timeline, which the daemon or its GPU raises, or for a user timeline.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "client/src/clock.h"
#include "client/src/cuda/driver.h"
#include "client/src/failure.h"
#include "client/src/remote/session.h"
#include "client/src/remote/shared_word.h"
#include "client/src/remote/user_timeline.h"

namespace concert::client {
namespace {

// As long as a sleep in the kernel and its wake-up cost, some 10 to 20 us with the scheduler:
// spinning that long loses at most a factor of two against knowing the time beforehand, and covers
// the ops of a decode step.
constexpr int64_t kSpinNs = 20'000;

// The daemon wakes sleepers, so this only bounds how late its death is noticed.
constexpr int64_t kQueueNapNs = 100'000'000;
// Bounds how many polls late a caller that only polls notices the daemon's death.
constexpr uint32_t kPollsPerThoroughLook = 16;
// Nobody wakes sleepers when a GPU raises a user timeline.
constexpr int64_t kUserNapNs = 200'000;

unsigned long long Printable(uint64_t value) { return value; }

long Futex(const uint64_t* word, int operation, uint32_t value, const timespec* timeout) {
  // The low half, little-endian. Not FUTEX_PRIVATE: the daemon wakes through its own mapping.
  return syscall(SYS_futex, reinterpret_cast<const uint32_t*>(word), operation, value, timeout,
                 nullptr, 0);
}

}  // namespace

int RemoteSession::Find(concert_ticket ticket, Watch* watch, concert_error* error) {
  const auto session = static_cast<uint32_t>(ticket.timeline >> 32);
  const auto index = static_cast<uint32_t>(ticket.timeline);
  if (session != id_) {
    return Fail(error, CONCERT_INVALID_ARGUMENT,
                "the ticket is of session %u, this is session %u; let an op wait for it instead",
                session, id_);
  }
  if ((index & CONCERT_TIMELINE_USER) != 0) {
    const uint32_t user = index & ~CONCERT_TIMELINE_USER;
    if (user < regions_.layout().max_user_timelines) {
      *watch = {regions_.user_timeline(user), &user_waiters_[user], nullptr, 0, kUserNapNs};
      return CONCERT_OK;
    }
  } else if (index < regions_.layout().max_queues) {
    Ring* ring = queue_rings_[index].load(std::memory_order_acquire);
    if (ring != nullptr) {
      *watch = {regions_.timeline(index), regions_.waiters(index), ring, index, kQueueNapNs};
      return CONCERT_OK;
    }
  }
  const bool user = (index & CONCERT_TIMELINE_USER) != 0;
  return Fail(error, CONCERT_INVALID_ARGUMENT, "the ticket is of %s %u, which this session has not",
              user ? "user timeline" : "queue", index & ~CONCERT_TIMELINE_USER);
}

bool RemoteSession::Reached(const Watch& watch, uint64_t value) {
  // Acquire: the op's results and its completion entry are written before its timeline.
  return LoadAcquire(watch.word) >= value;
}

int RemoteSession::Outcome(const Watch& watch, uint64_t ticket, concert_error* error) {
  if (watch.ring == nullptr) return CONCERT_OK;
  watch.ring->Drain();
  return outcomes_.Of(watch.queue, ticket, error);
}

int RemoteSession::Look(const Watch& watch, uint64_t value, bool thorough, bool* done,
                        concert_error* error) {
  *done = true;
  if (Reached(watch, value)) return Outcome(watch, value, error);
  HandOver();
  if (int code = CheckOpen(thorough, error)) {
    // The timeline may have moved between the two looks; what is done stays done.
    return Reached(watch, value) ? Outcome(watch, value, error) : code;
  }
  *done = false;
  return CONCERT_OK;
}

int RemoteSession::Poll(concert_ticket ticket, bool* done, concert_error* error) {
  *done = true;
  if (ticket.timeline == 0) return CONCERT_OK;
  Watch watch;
  if (int code = Find(ticket, &watch, error)) return code;
  // Reading the clock, which a thorough look does, costs more than all else here.
  const bool thorough = polls_.fetch_add(1, std::memory_order_relaxed) % kPollsPerThoroughLook == 0;
  return Look(watch, ticket.value, thorough, done, error);
}

bool RemoteSession::SpinUntilReached(const Watch& watch, uint64_t value, int64_t limit_ns) {
  const int64_t until_ns = NowNs() + std::min(limit_ns, kSpinNs);
  do {
    for (int i = 0; i < 32; ++i) {
      if (Reached(watch, value)) return true;
      CpuRelax();
    }
  } while (NowNs() < until_ns);
  return false;
}

void RemoteSession::Sleep(const Watch& watch, uint64_t value, int64_t limit_ns) {
  __atomic_fetch_add(watch.waiters, 1, __ATOMIC_SEQ_CST);
  // Full fence: Dekker pair with "see the timeline, full fence, load waiters" of whoever raises it.
  // Either we see the new value here or it sees us there.
  FullFence();
  const uint64_t now = LoadAcquire(watch.word);
  if (now < value) {
    const timespec nap{limit_ns / 1'000'000'000, limit_ns % 1'000'000'000};
    Futex(watch.word, FUTEX_WAIT, static_cast<uint32_t>(now), &nap);
  }
  __atomic_fetch_sub(watch.waiters, 1, __ATOMIC_SEQ_CST);
}

// In the words of whoever waits: an op of a queue, or a value of a user timeline.
int RemoteSession::FailLate(const Watch& watch, concert_ticket ticket, int64_t timeout_ns,
                            concert_error* error) {
  const double timeout_ms = static_cast<double>(timeout_ns) / 1e6;
  const uint64_t now = LoadAcquire(watch.word);
  if (watch.ring == nullptr) {
    const uint32_t index = static_cast<uint32_t>(ticket.timeline) & ~CONCERT_TIMELINE_USER;
    return Fail(error, CONCERT_DEADLINE_EXCEEDED,
                "user timeline %u did not reach %llu within %.3f ms; it stands at %llu", index,
                Printable(ticket.value), timeout_ms, Printable(now));
  }
  return Fail(
      error, CONCERT_DEADLINE_EXCEEDED,
      "op %llu of queue %u on GPU %u did not end within %.3f ms; the last that has is op %llu",
      Printable(ticket.value), watch.queue, watch.ring->gpu(), timeout_ms, Printable(now));
}

int RemoteSession::Wait(concert_ticket ticket, int64_t timeout_ns, concert_error* error) {
  if (ticket.timeline == 0) return CONCERT_OK;
  Watch watch;
  if (int code = Find(ticket, &watch, error)) return code;
  if (Reached(watch, ticket.value)) return Outcome(watch, ticket.value, error);
  HandOver();
  const Deadline deadline(timeout_ns);
  if (SpinUntilReached(watch, ticket.value, deadline.Left(kSpinNs))) {
    return Outcome(watch, ticket.value, error);
  }
  for (;;) {
    bool done = false;
    const int code = Look(watch, ticket.value, /*thorough=*/true, &done, error);
    if (done || code != CONCERT_OK) return code;
    // The daemon admits no more ops when the ring's completions pile up.
    if (watch.ring != nullptr) watch.ring->Drain();
    const int64_t left_ns = deadline.Left(watch.nap_ns);
    if (left_ns == 0) return FailLate(watch, ticket, timeout_ns, error);
    Sleep(watch, ticket.value, left_ns);
  }
}

int RemoteSession::RegisterWithCuda(const Mapping& region, bool read_only, std::atomic<int>* device,
                                    concert_error* error) {
  if (device->load(std::memory_order_acquire) != kNotRegistered) return CONCERT_OK;
  const MutexLock lock(cuda_mutex_);
  if (device->load(std::memory_order_relaxed) != kNotRegistered) return CONCERT_OK;
  int current = 0;
  if (int code = cuda::RegisterHost(region.data(), region.bytes(), read_only, &current, error)) {
    return code;
  }
  device->store(current, std::memory_order_release);
  return CONCERT_OK;
}

int RemoteSession::CheckStreams(const char* instead, concert_error* error) const {
  if (gpu_count_ == 0 || gpus_[0].backend == CONCERT_BACKEND_CUDA) return CONCERT_OK;
  return Fail(error, CONCERT_UNIMPLEMENTED,
              "the daemon runs on simulated GPUs, which have no CUDA streams; use %s", instead);
}

int RemoteSession::WaitOnStream(concert_ticket ticket, void* stream, concert_error* error) {
  if (ticket.timeline == 0) return CONCERT_OK;
  Watch watch;
  if (int code = Find(ticket, &watch, error)) return code;
  HandOver();
  if (int code = CheckStreams("concert_wait", error)) return code;
  if (Reached(watch, ticket.value)) return CONCERT_OK;
  if (int code = CheckOpen(/*thorough=*/true, error)) return code;
  const bool user = watch.ring == nullptr;
  if (int code = user ? RegisterWithCuda(regions_.client(), false, &client_region_device_, error)
                      : RegisterWithCuda(regions_.daemon(), true, &daemon_region_device_, error)) {
    return code;
  }
  return cuda::StreamWait(stream, watch.word, ticket.value, error);
}

int RemoteSession::CreateUserTimeline(concert_user_timeline** timeline, concert_error* error) {
  const MutexLock lock(user_timelines_mutex_);
  for (uint32_t i = 0; i < regions_.layout().max_user_timelines; ++i) {
    if (user_timelines_used_[i]) continue;
    auto self = std::static_pointer_cast<RemoteSession>(shared_from_this());
    *timeline = new RemoteUserTimeline(std::move(self), i);
    user_timelines_used_[i] = true;
    StoreRelease<uint64_t>(regions_.user_timeline(i), 0);
    return CONCERT_OK;
  }
  return Fail(error, CONCERT_RESOURCE_EXHAUSTED, "all %u user timelines of the session are in use",
              regions_.layout().max_user_timelines);
}

void RemoteSession::ReleaseUserTimeline(uint32_t index) {
  const MutexLock lock(user_timelines_mutex_);
  user_timelines_used_[index] = false;
}

void RemoteSession::SignalUserTimeline(uint32_t index, uint64_t value) {
  uint64_t* word = regions_.user_timeline(index);
  // Release: what the caller wrote before comes before the signal.
  RaiseRelease(word, value);
  // Full fence: Dekker pair with Sleep().
  FullFence();
  if (LoadAcquire(&user_waiters_[index]) != 0) Futex(word, FUTEX_WAKE, INT_MAX, nullptr);
  // Ops of any GPU may wait for it, and a dispatcher that sleeps does not look.
  for (const auto& ring : rings_) ring->Wake();
}

int RemoteSession::SignalUserTimelineOnStream(uint32_t index, uint64_t value, void* stream,
                                              concert_error* error) {
  if (int code = CheckStreams("concert_user_timeline_signal", error)) return code;
  if (int code = RegisterWithCuda(regions_.client(), false, &client_region_device_, error)) {
    return code;
  }
  return cuda::StreamWrite(stream, regions_.user_timeline(index), value, error);
}

}  // namespace concert::client
