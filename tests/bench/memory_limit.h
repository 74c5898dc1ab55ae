// What results are measured against: the memory of the GPU that they are from.
#ifndef CONCERT_TESTS_BENCH_MEMORY_LIMIT_H_
#define CONCERT_TESTS_BENCH_MEMORY_LIMIT_H_

#include <string_view>

namespace concert::bench {

// Bytes a second that the memory of a GPU of this name gives at most, as measured: of an H100 (SXM)
// by the steps of eight clients, who come to 2.96 TB/s (docs/benchmarks/README.md); of an H200, for
// which the other GPUs and models are taken.
inline double MemoryBytesPerS(std::string_view gpu_name) {
  return gpu_name.find("H100") != std::string_view::npos ? 3.0e12 : 4.2e12;
}

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_MEMORY_LIMIT_H_
