// What "now" is for a simulated node.
#ifndef CONCERT_DAEMON_DEVICE_SIM_SIM_CLOCK_H_
#define CONCERT_DAEMON_DEVICE_SIM_SIM_CLOCK_H_

#include <chrono>
#include <cstdint>

#include "policies/seam/work.h"

namespace concert::daemon::sim {

enum class Pace : uint8_t {
  kVirtual,   // time stands still until the caller advances it; no threads
  kRealTime,  // modelled times are kept on CLOCK_MONOTONIC
  kFlatOut,   // time jumps from event to event, as fast as the CPU computes the numbers
};

// Nanoseconds of CLOCK_MONOTONIC, which is what std::chrono::steady_clock reads on Linux.
inline policies::Time MonotonicNow() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline std::chrono::steady_clock::time_point MonotonicPoint(policies::Time time) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(time));
}

}  // namespace concert::daemon::sim

#endif  // CONCERT_DAEMON_DEVICE_SIM_SIM_CLOCK_H_
