// One way of computing a scenario's batches: through concertd, or with cuBLASLt in this process.
#ifndef CONCERT_TESTS_BENCH_CONTENDER_H_
#define CONCERT_TESTS_BENCH_CONTENDER_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/gemm_workload.h"

namespace concert::bench {

// Used by one thread. Batch i of a run works on operand set i % sets.
class Contender {
 public:
  virtual ~Contender() = default;

  // Runs batches, as many in flight as the contender keeps, and returns when all are done: the time
  // of one, in microseconds, once the pipeline is full. A contender may round the number up.
  virtual absl::StatusOr<double> Run(int batches) = 0;

  // Fills every output with NaN.
  virtual absl::Status PoisonOutputs() = 0;
  // The largest relative error over all sets and GEMMs, NaN if an element is.
  virtual absl::StatusOr<double> WorstError() = 0;
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_CONTENDER_H_
