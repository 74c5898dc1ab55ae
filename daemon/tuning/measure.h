// The seam between deciding what to measure and measuring it.
#ifndef CONCERT_DAEMON_TUNING_MEASURE_H_
#define CONCERT_DAEMON_TUNING_MEASURE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "policies/cost/tuned_table.h"

namespace concert::daemon {

// A GEMM and the kernel that it runs with.
struct Candidate {
  policies::Problem problem;
  policies::Variant variant;
};

// Of a whole co-run set, from its start to its end.
struct Measurement {
  float median_us = 0, p10_us = 0, p90_us = 0;
};

class Bench {
 public:
  virtual ~Bench() = default;

  // The variants worth measuring of a GEMM on `sm_budget` SMs (0: all), the default first: what
  // would run if nothing had been tuned. Empty: it cannot run here.
  virtual std::vector<policies::Variant> Candidates(const policies::Problem& problem,
                                                    int sm_budget) = 0;

  // Runs the set again and again and gives its time in `samples` samples, each the average of
  // at least 20 launches. Operands come from HBM. `sm_budget` as in TunedKey. INVALID_ARGUMENT: it
  // cannot be run or does not fit; CANCELLED: told to stop, or out of time; any other status: the
  // device is of no use any more.
  virtual absl::StatusOr<Measurement> Measure(std::span<const Candidate> set, policies::Form form,
                                              int sm_budget, int samples) = 0;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TUNING_MEASURE_H_
