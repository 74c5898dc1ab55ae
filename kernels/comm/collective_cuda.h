// Collectives on CUDA GPUs: NCCL between GPUs, own kernels among ranks that share one GPU.
#ifndef CONCERT_KERNELS_COMM_COLLECTIVE_CUDA_H_
#define CONCERT_KERNELS_COMM_COLLECTIVE_CUDA_H_

#include <span>

#include "absl/status/status.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/op.h"

namespace concert::kernels::cuda {

// Enqueues all ranks' parts, one per entry of context.ranks. Each rank's stream then holds its
// part: later work on it runs after the rank's result is complete.
absl::Status LaunchCollective(CollectiveContext& context, std::span<const Op* const> parts);

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_COMM_COLLECTIVE_CUDA_H_
