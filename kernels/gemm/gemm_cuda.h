// GEMM on a CUDA GPU: cuBLASLt where it has a kernel, concert's own where it has none.
#ifndef CONCERT_KERNELS_GEMM_GEMM_CUDA_H_
#define CONCERT_KERNELS_GEMM_GEMM_CUDA_H_

#include "absl/status/status.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/gemm/gemm_cache.h"
#include "kernels/op.h"

namespace concert::kernels::cuda {

// Enqueues op.gemm. The first time a problem is seen, cuBLASLt's heuristic is asked on the host
// (some 50 us); nothing waits for the GPU. fp32 accumulation; tf32 only where the op allows it.
absl::Status LaunchGemm(LaunchContext& context, const Op& op);

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GEMM_GEMM_CUDA_H_
