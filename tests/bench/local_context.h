// What the baselines that compute in this process share: CUDA's libraries, streams with workspaces,
// and CUDA graphs. Only the files named local_*.cc include it.
#ifndef CONCERT_TESTS_BENCH_LOCAL_CONTEXT_H_
#define CONCERT_TESTS_BENCH_LOCAL_CONTEXT_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda_api/cuda_api.h"

// What timing and graphs need beyond kernels/cuda_api/driver.h.
#define CONCERT_BENCH_DRIVER_FUNCTIONS(X) \
  X(cuStreamBeginCapture)                 \
  X(cuStreamEndCapture)                   \
  X(cuGraphInstantiateWithFlags)          \
  X(cuGraphLaunch)                        \
  X(cuGraphDestroy)                       \
  X(cuGraphExecDestroy)                   \
  X(cuEventElapsedTime)

namespace concert::bench::local {

constexpr uint64_t kWorkspaceBytes = 32 << 20;  // what NVIDIA recommends for Hopper

struct TimingApi {
#define X(name) decltype(&::name) name = nullptr;
  CONCERT_BENCH_DRIVER_FUNCTIONS(X)
#undef X

  static absl::StatusOr<TimingApi> Load();

 private:
  kernels::cuda::SharedLibrary library_;
};

// One GPU's primary context with what every entrant needs. Used by one thread.
struct Context {
  // `streams` streams, all of the highest priority there is or of the usual one.
  static absl::StatusOr<std::unique_ptr<Context>> Open(const std::array<uint8_t, 16>& uuid,
                                                       int streams, bool high_priority);
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  kernels::cuda::CudaApi api;
  TimingApi timing;
  CUdevice device = 0;
  int sm_count = 0;
  CUcontext context = nullptr;
  cublasLtHandle_t cublaslt = nullptr;
  std::vector<CUstream> streams;
  std::vector<CUevent> joins;           // one per stream
  std::vector<CUdeviceptr> workspaces;  // one per stream
  CUevent begin = nullptr, end = nullptr;

  absl::Status Check(CUresult result, const char* call) const {
    return api.driver.ToStatus(result, call, 0);
  }
  // Makes streams 1 to count - 1 wait for stream 0, and stream 0 for them.
  absl::Status Fork(int count) const;
  absl::Status Join(int count) const;

 private:
  absl::Status Prepare(int stream_count, bool high_priority);
};

// Calls context.table.function(args...) and returns from the enclosing function if it failed.
#define CONCERT_BENCH_RETURN_IF_ERROR(context, table, function, ...)       \
  do {                                                                     \
    absl::Status concert_status =                                          \
        (context).Check((context).table.function(__VA_ARGS__), #function); \
    if (!concert_status.ok()) return concert_status;                       \
  } while (false)

// Captured work, replayed as often as one likes. The context must outlive it.
class Graph {
 public:
  // Captures what `enqueue` gives to stream 0 and to streams forked from it and joined again.
  static absl::StatusOr<Graph> Capture(const Context& context,
                                       const std::function<absl::Status()>& enqueue);
  Graph(Graph&& other) noexcept
      : context_(other.context_), executable_(std::exchange(other.executable_, nullptr)) {}
  Graph& operator=(Graph&&) = delete;
  ~Graph();

  // On stream 0.
  absl::Status Launch() const;
  // Replays it `replays` times, once more before to fill the pipeline, and says how many
  // microseconds one replay took by the device's clock.
  absl::StatusOr<double> Time(int replays) const;

 private:
  Graph(const Context& context, CUgraphExec executable)
      : context_(&context), executable_(executable) {}

  const Context* context_;
  CUgraphExec executable_;
};

}  // namespace concert::bench::local

#endif  // CONCERT_TESTS_BENCH_LOCAL_CONTEXT_H_
