#include "kernels/program/binding_copies.h"

#include <algorithm>

#include "kernels/cuda_api/launch_kernel.h"

namespace concert::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr uint64_t kBytesOfBlock = 16 * 1024;  // what a block moves in a few round trips to memory
constexpr uint64_t kMaxBlocksEach = 128;       // with 32, 8 MB took 29 us (one H200)

}  // namespace

absl::Status BindingCopies::Capture(const LaunchContext& context, CUgraphNode& node) {
  const Driver& driver = context.api.driver;
  const BindingCopyArgs nothing = {};
  CUlaunchAttribute early = OverlapsTheOneBefore();
  if (absl::Status status =
          LaunchKernelWith({&early, context.begins_early ? 1u : 0u}, driver, context.gpu,
                           context.kernels.copy_bindings, 1, kThreads, context.stream, nothing);
      !status.ok()) {
    return status;
  }
  CUstreamCaptureStatus capturing;
  const CUgraphNode* last = nullptr;
  size_t count = 0;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, context.gpu, cuStreamGetCaptureInfo, context.stream,
                                 &capturing, nullptr, nullptr, &last, nullptr, &count);
  node = *last;  // there is one, which is the launch
  return absl::OkStatus();
}

absl::Status BindingCopies::Set(const LaunchContext& context, CUgraphExec executable,
                                CUgraphNode node) {
  uint64_t largest = 0;
  for (uint32_t i = 0; i < args_.count; ++i) largest = std::max(largest, args_.copies[i].bytes);
  args_.blocks_each =
      static_cast<uint32_t>(std::clamp<uint64_t>(largest / kBytesOfBlock, 1, kMaxBlocksEach));
  void* arguments[] = {&args_};
  CUDA_KERNEL_NODE_PARAMS parameters = {};
  parameters.func = context.kernels.copy_bindings;
  parameters.gridDimX = std::max(1u, args_.count) * args_.blocks_each;
  parameters.gridDimY = parameters.gridDimZ = 1;
  parameters.blockDimX = kThreads;
  parameters.blockDimY = parameters.blockDimZ = 1;
  parameters.kernelParams = arguments;
  return context.api.driver.ToStatus(
      context.api.driver.cuGraphExecKernelNodeSetParams(executable, node, &parameters),
      "cuGraphExecKernelNodeSetParams", context.gpu);
}

}  // namespace concert::kernels::cuda
