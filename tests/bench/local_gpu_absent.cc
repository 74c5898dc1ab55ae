// Builds without CUDA.
#include "tests/bench/local_gpu.h"

namespace concert::bench {

absl::StatusOr<std::unique_ptr<LocalGpu>> LocalGpu::Open(const std::array<uint8_t, 16>&) {
  return absl::UnavailableError("concert-bench was built without CUDA");
}

}  // namespace concert::bench
