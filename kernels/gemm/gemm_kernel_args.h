// Arguments of concert's own GEMM kernels, shared by their host and device code. Passed by value.
#ifndef CONCERT_KERNELS_GEMM_GEMM_KERNEL_ARGS_H_
#define CONCERT_KERNELS_GEMM_GEMM_KERNEL_ARGS_H_

#include <cstdint>

namespace concert::kernels::cuda {

// D = act(D + bias) in place. bias may be null. `activation` is kernels::Activation.
struct EpilogueArgs {
  void* d;
  const void* bias;
  uint64_t ldd, stride_d;  // elements
  uint32_t m, n, batch;
  uint32_t activation;
};

// D = act(alpha * scales * A * W^T + beta * C + bias); layouts as concert_gemm_body. c null: beta
// is 0. Scales null: 1.
struct FallbackGemmArgs {
  const void *a, *w, *c, *bias;
  const float *a_scales, *w_scales;
  void* d;
  uint64_t lda, ldw, ldc, ldd;
  uint64_t stride_a, stride_w, stride_c, stride_d;
  uint32_t m, n, k, batch;
  uint32_t a_scale_step, w_scale_step;  // 1: a scale per row; 0: one per tensor
  float alpha, beta;
  uint32_t activation;
};

inline constexpr int kEpilogueThreads = 256;
inline constexpr int kFallbackGemmThreads = 256;
inline constexpr int kFallbackGemmTile = 64;  // rows and columns of D per block

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GEMM_GEMM_KERNEL_ARGS_H_
