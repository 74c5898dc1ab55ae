// Enqueues one of concert's own kernels, whose only parameter is a struct passed by value.
#ifndef CONCERT_KERNELS_CUDA_API_LAUNCH_KERNEL_H_
#define CONCERT_KERNELS_CUDA_API_LAUNCH_KERNEL_H_

#include <algorithm>
#include <cstdint>
#include <span>

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

// As LaunchKernel, with attributes.
template <typename Args>
absl::Status LaunchKernelWith(std::span<CUlaunchAttribute> attributes, const Driver& driver,
                              int gpu, CUfunction function, unsigned blocks, int threads,
                              CUstream stream, const Args& args, size_t shared_bytes = 0) {
  CUlaunchConfig config = {};
  config.gridDimX = blocks;
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = static_cast<unsigned>(threads);
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = static_cast<unsigned>(shared_bytes);
  config.hStream = stream;
  config.attrs = attributes.data();
  config.numAttrs = static_cast<unsigned>(attributes.size());
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

// So many blocks go together, on neighbouring SMs. REQUIRES: their number is a multiple of it.
inline CUlaunchAttribute BlocksInClusters(unsigned blocks) {
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim.x = blocks;
  attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
  return attribute;
}

// As LaunchKernel, with blocks in pairs if their number is even: so that they leave whole pairs of
// SMs to kernels whose blocks go in pairs.
template <typename Args>
absl::Status LaunchPairs(const Driver& driver, int gpu, CUfunction function, unsigned blocks,
                         int threads, CUstream stream, const Args& args, size_t shared_bytes) {
  CUlaunchAttribute pairs = BlocksInClusters(2);
  return LaunchKernelWith({&pairs, blocks % 2 == 0 ? 1u : 0u}, driver, gpu, function, blocks,
                          threads, stream, args, shared_bytes);
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_CUDA_API_LAUNCH_KERNEL_H_
