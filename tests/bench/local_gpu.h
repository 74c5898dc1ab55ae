// The baselines: this process computing for itself with cuBLASLt and cuBLAS, without concert.
#ifndef CONCERT_TESTS_BENCH_LOCAL_GPU_H_
#define CONCERT_TESTS_BENCH_LOCAL_GPU_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tests/bench/chain_client.h"
#include "tests/bench/gemm_workload.h"

namespace concert::bench {

using GpuUuid = std::array<uint8_t, 16>;

// A CUDA graph of batches, replayed.
class LocalRun {
 public:
  virtual ~LocalRun() = default;
  // As Contender::Run: at least `batches`, in whole replays of the graph; device events around
  // them.
  virtual absl::StatusOr<double> Run(int batches) = 0;
};

// One batch at a time.
class LocalIsolated {
 public:
  virtual ~LocalIsolated() = default;
  // Microseconds from before the first call until this thread, polling, sees a host word that the
  // GPU wrote behind the last GEMM.
  virtual absl::StatusOr<double> RunOnce(int set) = 0;
};

// Used by one thread. Runs must end before their LocalGpu.
class LocalGpu {
 public:
  enum class Form {
    kSerial,        // one stream, GEMM after GEMM
    kSerialTuned,   // the same, each GEMM with the kernel that is fastest alone
    kStreams,       // GEMM i of every batch on stream i
    kStreamsTuned,  // the same, each GEMM with the kernel that is fastest in such a set
    kStreamsWide,   // GEMM i of every batch in flight on a stream of its own, as concert's queues
    kGroupLibrary,  // a batch is one launch of cuBLAS
    kGoldyloc,      // on the streams and with kernels for the co-run sets that `goldyloc` plans
  };
  enum class IsolatedForm {
    kPlainLaunches,  // GEMM by GEMM on one stream, without a graph
    kGraph,          // one launch of a graph with a branch for every GEMM, kernels as kStreamsTuned
  };
  struct Versions {
    std::string driver, cuda, cublas, nccl;  // empty: not known
  };

  // Opens the GPU with this uuid in its primary context, where the client library maps buffers.
  // UNAVAILABLE without CUDA.
  static absl::StatusOr<std::unique_ptr<LocalGpu>> Open(const GpuUuid& uuid);
  virtual ~LocalGpu() = default;

  // Records the workload's batches. Unless the form says otherwise, each GEMM has the first kernel
  // of cuBLASLt's heuristic. `memory` is the device address of the workload's range, which tuning
  // computes in. NOT_FOUND where the library is missing or has no kernel for one of the shapes.
  virtual absl::StatusOr<std::unique_ptr<LocalRun>> Record(const GemmWorkload& workload,
                                                           uint64_t memory, Form form) = 0;
  // The workload must outlive what it returns. NOT_FOUND as Record.
  virtual absl::StatusOr<std::unique_ptr<LocalIsolated>> Isolate(const GemmWorkload& workload,
                                                                 uint64_t memory,
                                                                 IsolatedForm form) = 0;
  // Host memory that copies from and to the GPU need not stage, until all copies of the pointer are
  // gone; the GPU must outlive them. Null: there is none.
  virtual std::shared_ptr<uint8_t[]> AllocatePinned(uint64_t bytes) = 0;
  virtual Versions versions() const = 0;
};

// A tenant that owns its memory and replays its chains from CUDA graphs, one per operand set, on a
// stream of the highest priority or of the usual one. `image` is the workload's; the workload must
// outlive the client.
absl::StatusOr<std::unique_ptr<ChainClient>> MakeLocalChainClient(
    const GpuUuid& uuid, bool high_priority, const GemmWorkload& workload,
    const std::vector<uint8_t>& image);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_LOCAL_GPU_H_
