// The baselines: this process computing for itself with cuBLASLt, without concert.
#ifndef CONCERT_TESTS_BENCH_LOCAL_GPU_H_
#define CONCERT_TESTS_BENCH_LOCAL_GPU_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tests/bench/gemm_workload.h"

namespace concert::bench {

// A CUDA graph of batches, replayed.
class LocalRun {
 public:
  virtual ~LocalRun() = default;
  // As Contender::Run: at least `batches`, in whole replays of the graph; device events around
  // them.
  virtual absl::StatusOr<double> Run(int batches) = 0;
};

// Used by one thread.
class LocalGpu {
 public:
  enum class Form {
    kSerial,   // one stream, GEMM after GEMM
    kStreams,  // GEMM i of every batch on stream i
  };
  struct Versions {
    std::string driver, cuda, cublas, nccl;  // empty: not known
  };

  // Opens the GPU with this uuid in its primary context, where the client library maps buffers.
  // UNAVAILABLE without CUDA.
  static absl::StatusOr<std::unique_ptr<LocalGpu>> Open(const std::array<uint8_t, 16>& uuid);
  virtual ~LocalGpu() = default;

  // Records the workload's batches, each GEMM with the first kernel of cuBLASLt's heuristic.
  // `memory` is the device address of the workload's range. NOT_FOUND where cuBLASLt has no kernel
  // for one of the shapes.
  virtual absl::StatusOr<std::unique_ptr<LocalRun>> Record(const GemmWorkload& workload,
                                                           uint64_t memory, Form form) = 0;
  virtual Versions versions() const = 0;
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_LOCAL_GPU_H_
