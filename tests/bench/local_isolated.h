#ifndef CONCERT_TESTS_BENCH_LOCAL_ISOLATED_H_
#define CONCERT_TESTS_BENCH_LOCAL_ISOLATED_H_

#include <memory>

#include "tests/bench/local_context.h"
#include "tests/bench/local_gpu.h"

namespace concert::bench::local {

// See LocalGpu::Isolate. The context must outlive what it returns.
absl::StatusOr<std::unique_ptr<LocalIsolated>> MakeIsolated(const Context& context,
                                                            const GemmWorkload& workload,
                                                            uint64_t memory);

}  // namespace concert::bench::local

#endif  // CONCERT_TESTS_BENCH_LOCAL_ISOLATED_H_
