#include "kernels/program/binding_copies.h"

#include <algorithm>

#include "kernels/cuda_api/launch_kernel.h"

namespace concert::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr uint64_t kBytesOfBlock = 16 * 1024;  // what a block moves in a few round trips to memory
constexpr uint64_t kMaxBlocksEach = 32;

}  // namespace

absl::Status BindingCopies::Launch(const LaunchContext& context) {
  if (args_.count == 0 && args_.there == nullptr) return absl::OkStatus();
  uint64_t largest = 0;
  for (uint32_t i = 0; i < args_.count; ++i) largest = std::max(largest, args_.copies[i].bytes);
  args_.blocks_each =
      static_cast<uint32_t>(std::clamp<uint64_t>(largest / kBytesOfBlock, 1, kMaxBlocksEach));
  return LaunchKernel(context.api.driver, context.gpu, context.kernels.copy_bindings,
                      std::max(1u, args_.count) * args_.blocks_each, kThreads, context.stream,
                      args_);
}

}  // namespace concert::kernels::cuda
