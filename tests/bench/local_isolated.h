#ifndef CONCERT_TESTS_BENCH_LOCAL_ISOLATED_H_
#define CONCERT_TESTS_BENCH_LOCAL_ISOLATED_H_

#include <memory>
#include <vector>

#include "tests/bench/graph_launches.h"
#include "tests/bench/local_context.h"
#include "tests/bench/local_gemm.h"
#include "tests/bench/local_gpu.h"

namespace concert::bench::local {

// See LocalGpu::Isolate. Context and workload must outlive what these return.

// `kernels`: of each GEMM of a batch.
absl::StatusOr<std::unique_ptr<LocalIsolated>> MakePlainLaunches(const Context& context,
                                                                 const GemmWorkload& workload,
                                                                 uint64_t memory,
                                                                 std::vector<LtGemm> kernels);
// A graph for every operand set, with what `launches` of one batch say; `kernels`: of each of them.
absl::StatusOr<std::unique_ptr<LocalIsolated>> MakeIsolatedGraph(
    const Context& context, const GemmWorkload& workload, uint64_t memory,
    const std::vector<GraphLaunch>& launches, const std::vector<LtGemm>& kernels);

}  // namespace concert::bench::local

#endif  // CONCERT_TESTS_BENCH_LOCAL_ISOLATED_H_
