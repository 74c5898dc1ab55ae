// A client's step as a registered program, of which nothing ever runs: buffers of the right sizes,
// in which nothing is.
#ifndef CONCERT_TESTS_BENCH_PLANNED_STEP_H_
#define CONCERT_TESTS_BENCH_PLANNED_STEP_H_

#include <cstdint>
#include <vector>

#include "concert/concert.hpp"
#include "tests/bench/step_data.h"
#include "tests/bench/step_ops.h"

namespace concert::bench {

// What clients of the same model and weights have in common.
struct PlannedWeights {
  std::vector<Buffer> buffers;
  StepSlices tensors;  // without caches

  PlannedWeights(Session& session, const StepData& data);
};

// Registers the program, whose caches are its own. Aborts with the daemon's sentence where it is
// refused. `weights` must outlive it.
class PlannedStep {
 public:
  PlannedStep(Session& session, const StepData& data, const PlannedWeights& weights);

 private:
  std::vector<Buffer> buffers_;
  Program program_;
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_PLANNED_STEP_H_
