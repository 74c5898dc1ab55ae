// Enqueues one of concert's own kernels, whose only parameter is a struct passed by value.
#ifndef CONCERT_KERNELS_CUDA_API_LAUNCH_KERNEL_H_
#define CONCERT_KERNELS_CUDA_API_LAUNCH_KERNEL_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda_api/driver.h"

namespace concert::kernels::cuda {

// Blocks for `items` items at one per thread, at most `max_blocks`: the kernels loop over the rest.
inline unsigned BlocksFor(uint64_t items, int threads, unsigned max_blocks) {
  const uint64_t blocks = items / threads + (items % threads != 0);
  return static_cast<unsigned>(std::clamp<uint64_t>(blocks, 1, max_blocks));
}

// `shared_bytes`: dynamic ones; beyond 48 KB the function must have been allowed them. REQUIRES:
// the context of `function` is current, and `stream` belongs to it.
template <typename Args>
absl::Status LaunchKernel(const Driver& driver, int gpu, CUfunction function, unsigned blocks,
                          int threads, CUstream stream, const Args& args, size_t shared_bytes = 0) {
  void* parameters[] = {const_cast<Args*>(&args)};
  const CUresult result =
      driver.cuLaunchKernel(function, blocks, 1, 1, static_cast<unsigned>(threads), 1, 1,
                            static_cast<unsigned>(shared_bytes), stream, parameters, nullptr);
  return driver.ToStatus(result, "cuLaunchKernel", gpu);
}

// As LaunchKernel, with an attribute; null: none.
template <typename Args>
absl::Status LaunchKernelWith(CUlaunchAttribute* attribute, const Driver& driver, int gpu,
                              CUfunction function, unsigned blocks, int threads, CUstream stream,
                              const Args& args, size_t shared_bytes = 0) {
  CUlaunchConfig config = {};
  config.gridDimX = blocks;
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = static_cast<unsigned>(threads);
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = static_cast<unsigned>(shared_bytes);
  config.hStream = stream;
  config.attrs = attribute;
  config.numAttrs = attribute != nullptr ? 1 : 0;
  void* parameters[] = {const_cast<Args*>(&args)};
  return driver.ToStatus(driver.cuLaunchKernelEx(&config, function, parameters, nullptr),
                         "cuLaunchKernelEx", gpu);
}

// May begin before the kernel ahead of it on the stream has ended, where that releases it.
inline CUlaunchAttribute OverlapsTheOneBefore() {
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  return attribute;
}

// Blocks go in pairs on neighbouring SMs. REQUIRES: an even number of them.
inline CUlaunchAttribute BlocksInPairs() {
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim.x = 2;
  attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
  return attribute;
}

// As LaunchKernel, with blocks in pairs if their number is even: so that they leave whole pairs of
// SMs to kernels whose blocks go in pairs.
template <typename Args>
absl::Status LaunchPairs(const Driver& driver, int gpu, CUfunction function, unsigned blocks,
                         int threads, CUstream stream, const Args& args, size_t shared_bytes) {
  CUlaunchAttribute pairs = BlocksInPairs();
  return LaunchKernelWith(blocks % 2 == 0 ? &pairs : nullptr, driver, gpu, function, blocks,
                          threads, stream, args, shared_bytes);
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_CUDA_API_LAUNCH_KERNEL_H_
