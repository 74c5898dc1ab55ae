// What the baselines' CUDA graphs launch.
#ifndef CONCERT_TESTS_BENCH_GRAPH_LAUNCHES_H_
#define CONCERT_TESTS_BENCH_GRAPH_LAUNCHES_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "policies/seam/variant.h"
#include "tests/bench/gemm_workload.h"
#include "tests/bench/local_gpu.h"

namespace concert::bench {

// The hardware queues of a context (CUDA_DEVICE_MAX_CONNECTIONS): more streams share them.
inline constexpr int kMaxStreams = 32;

struct GraphLaunch {
  int batch = 0, gemm = 0, stream = 0;
  // The kernel: the one that is fastest in a co-run set of this degree, all of them alike; nothing:
  // the first of cuBLASLt's heuristic.
  std::optional<policies::Degree> tuned_for;
};

// A round of the workload's batches (batches_per_round) in the order of the launches. NOT_FOUND
// where the form has no answer for the workload. REQUIRES: not kGroupLibrary.
absl::StatusOr<std::vector<GraphLaunch>> LaunchesOf(LocalGpu::Form form,
                                                    const GemmWorkload& workload, int sm_count);

// One batch with a stream for each GEMM, as far as there are streams, and the kernels for that
// degree.
std::vector<GraphLaunch> LaunchesOfBatch(const GemmWorkload& workload);

// As many as the launches name.
int StreamCount(const std::vector<GraphLaunch>& launches);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_GRAPH_LAUNCHES_H_
