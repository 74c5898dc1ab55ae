// A GEMM with addresses. Plain C++ that device code includes too: the fallback kernel's parameter.
#ifndef CONCERT_KERNELS_GEMM_GEMM_ARGS_H_
#define CONCERT_KERNELS_GEMM_GEMM_ARGS_H_

#include <cstdint>

#include "policies/seam/work.h"

namespace concert::kernels {

using policies::Dtype;
using policies::DtypeBytes;

enum class Activation : uint8_t { kNone = 0, kRelu = 1, kGelu = 2, kSilu = 3 };

// Address in the device's address space (a host pointer on sim); 0: the operand is absent.
using Address = uint64_t;

// D = act(alpha * a_scales * w_scales * A * W^T + beta * C + bias), or with C behind the
// activation; layouts and order as concert_gemm_body.
struct GemmArgs {
  uint32_t m, n, k, batch;
  Address a, w, c, d, bias;
  uint64_t lda, ldw, ldc, ldd;                      // elements
  uint64_t stride_a, stride_w, stride_c, stride_d;  // elements
  float alpha, beta;
  // fp32; 0: the scale is 1. Of other dtypes than fp8 there may be those of A's rows.
  Address a_scales, w_scales;
  Dtype dtype;    // of A and W
  Dtype d_dtype;  // of C, D and bias; never fp8
  Activation activation;
  bool allow_tf32;
  bool a_scales_per_row, w_scales_per_row;  // one per row of A or W; else one per tensor
  bool residual;  // beta * C is added behind the activation, of which there is one
  // D is an activation of gates times ups, in halves of the product's columns or by turns. No C.
  bool gated, interleaved;

  // Of D; n are the product's.
  constexpr uint32_t d_columns() const { return gated ? n / 2 : n; }
  // Whether it ends as cuBLASLt knows it, but for the activation.
  bool EndsPlainly() const {
    return !residual && !gated && (a_scales == 0 || dtype == Dtype::kFp8E4m3);
  }
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_GEMM_GEMM_ARGS_H_
