// Copy on a CUDA GPU.
#ifndef CONCERT_KERNELS_COPY_COPY_CUDA_H_
#define CONCERT_KERNELS_COPY_COPY_CUDA_H_

#include "absl/status/status.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/op.h"

namespace concert::kernels::cuda {

// Enqueues op.copy. Between GPUs a copy engine moves the bytes; within one GPU CUDA uses its SMs.
absl::Status LaunchCopy(LaunchContext& context, const Op& op);

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_COPY_COPY_CUDA_H_
