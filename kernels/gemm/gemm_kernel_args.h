// Arguments of concert's own GEMM kernels beside GemmArgs, shared by their host and device code.
// Passed by value.
#ifndef CONCERT_KERNELS_GEMM_GEMM_KERNEL_ARGS_H_
#define CONCERT_KERNELS_GEMM_GEMM_KERNEL_ARGS_H_

#include <cstdint>

#include "kernels/gemm/gemm_args.h"

namespace concert::kernels::cuda {

// D = act(D + bias) in place. bias may be null. `activation` is kernels::Activation.
struct EpilogueArgs {
  void* d;
  const void* bias;
  uint64_t ldd, stride_d;  // elements
  uint32_t m, n, batch;
  uint32_t activation;
};

// What is left to do for `gemm`, whose batch is 1: its sums are there, in m rows of n without gaps.
struct SumsArgs {
  GemmArgs gemm;
  const float* sums;
};

inline constexpr int kEpilogueThreads = 256;
inline constexpr int kFallbackGemmThreads = 256;
inline constexpr int kFallbackGemmTile = 64;  // rows and columns of D per block

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GEMM_GEMM_KERNEL_ARGS_H_
