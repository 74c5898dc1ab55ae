// The one clock of the daemon, and where its spinning threads live.
#ifndef CONCERT_DAEMON_CLOCK_H_
#define CONCERT_DAEMON_CLOCK_H_

#include <sched.h>
#include <time.h>

#include <cstdint>

namespace concert::daemon {

// Tells the CPU that this thread spins.
inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// CLOCK_MONOTONIC in nanoseconds: about 20 ns through the vDSO.
inline int64_t NowNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

// Where fewer CPUs are allowed, threads that spin or are pinned would starve the rest.
inline constexpr int kCpusToSpinOn = 4;

// Of this thread; none where that is not known.
inline cpu_set_t AllowedCpus() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) CPU_ZERO(&allowed);
  return allowed;
}

inline bool AreEnoughToSpinOn(const cpu_set_t& allowed) {
  return CPU_COUNT(&allowed) >= kCpusToSpinOn;
}

// Pins the calling thread to the `index`-th allowed CPU from the end, so that spinning threads
// share no CPU with each other. Does nothing where there are too few.
inline void PinToCpuOfItsOwn(int index) {
  const cpu_set_t allowed = AllowedCpus();
  if (!AreEnoughToSpinOn(allowed)) return;
  int left = index % CPU_COUNT(&allowed);
  for (int cpu = CPU_SETSIZE - 1; cpu >= 0; --cpu) {
    if (!CPU_ISSET(cpu, &allowed) || left-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof(one), &one);
    return;
  }
}

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_CLOCK_H_
