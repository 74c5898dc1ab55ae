// Builds without CUDA.
#include "tests/bench/local_gpu.h"

namespace concert::bench {
namespace {

absl::Status Absent() { return absl::UnavailableError("concert-bench was built without CUDA"); }

}  // namespace

absl::StatusOr<std::unique_ptr<LocalGpu>> LocalGpu::Open(const GpuUuid&) { return Absent(); }

absl::StatusOr<std::unique_ptr<ChainClient>> MakeLocalChainClient(const GpuUuid&, bool,
                                                                  const GemmWorkload&,
                                                                  const std::vector<uint8_t>&) {
  return Absent();
}

}  // namespace concert::bench
