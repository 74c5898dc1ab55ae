// Successive halving (K. Jamieson, A. Talwalkar, "Non-stochastic Best Arm Identification", 2016):
// few samples for all candidates, more for the better half, and so on. Most time goes to those that
// may win.
#ifndef CONCERT_DAEMON_TUNING_HALVING_H_
#define CONCERT_DAEMON_TUNING_HALVING_H_

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/tuning/measure.h"

namespace concert::daemon {

inline constexpr int kFirstSamples = 2;   // of every candidate
inline constexpr int kFinalSamples = 16;  // of the finalists; a row has at least as many
inline constexpr int kFinalists = 2;      // besides the default

struct Finalist {
  size_t candidate = 0;  // its index
  Measurement measurement;
};

// Measures candidates 0 to count - 1, of which 0 is the default, and returns the finalists, fastest
// first, measured with kFinalSamples. The default is always among them unless it cannot run. A
// candidate whose measurement is INVALID_ARGUMENT is out; any other error ends it all. NOT_FOUND:
// none can run.
absl::StatusOr<std::vector<Finalist>> Halve(
    size_t count,
    const std::function<absl::StatusOr<Measurement>(size_t candidate, int samples)>& measure);

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TUNING_HALVING_H_
