// The body of a GEMM.
#ifndef CONCERT_PROTO_RING_OPS_GEMM_H_
#define CONCERT_PROTO_RING_OPS_GEMM_H_

#include "proto/ring/ops/operand.h"

/* Bits of concert_gemm_body.flags. */
#define CONCERT_GEMM_ALLOW_TF32 (1u << 0)       /* fp32 operands may be rounded to tf32 */
#define CONCERT_GEMM_A_SCALES_PER_ROW (1u << 1) /* m scales of A, of any dtype; else 1, of fp8 only */
#define CONCERT_GEMM_W_SCALES_PER_ROW (1u << 2) /* n scales of W, of fp8 only; else 1 */
/* Since 1.4, where CONCERT_FEATURE_GEMM_EPILOGUES is, as scales of other dtypes than fp8 are: */
#define CONCERT_GEMM_RESIDUAL (1u << 3)         /* C is added behind the activation, not before it */
#define CONCERT_GEMM_GATED (1u << 4)            /* D is an activation of half of the product times the other half */
#define CONCERT_GEMM_GATE_INTERLEAVED (1u << 5) /* with the former: its columns are gate, up, gate, ...; else halves */

/* D[m,n] = act(alpha * A[m,k] * W[n,k]^T + beta * C[m,n] + bias[n]), `batch` times. All matrices are row-major;
 * ld* are row strides and stride_* distances between batch members, in elements.
 *
 * fp8: D[m,n] = act(alpha * a_scales[m] * w_scales[n] * A * W^T + beta * C + bias[n]). Scales are fp32, one per
 * tensor or one per row of A and of W (flags), the same for the whole batch; where there are none, they are 1.
 * Other dtypes may have scales of A, one per row: of rows that were made smaller, or of tokens that an expert weighs.
 *
 * What is done to a sum of products, in this order and in fp32. The result is rounded to D's dtype; in front of bias
 * and activation, where no residual follows, a device may have rounded to it before.
 *
 *   1. times alpha, a_scales[m] and w_scales[n]
 *   2. plus beta * C[m,n], without CONCERT_GEMM_RESIDUAL, and bias[n]
 *   3. the activation
 *   4. plus beta * C[m,n], with CONCERT_GEMM_RESIDUAL
 *
 * With CONCERT_GEMM_GATED D has n / 2 columns: D[m,j] = act(gate) * up of what two columns of the product are behind
 * step 2: j and n / 2 + j, or, with CONCERT_GEMM_GATE_INTERLEAVED, 2 * j and 2 * j + 1, as a gated activation takes
 * them. W has n rows and bias n elements. n must be even and the activation silu or gelu, as a gate's is; beta must
 * be 0, since there is no C to add to both halves, and none is added behind a gate.
 *
 * CONCERT_GEMM_RESIDUAL is refused with beta = 0, which leaves nothing to add. Without an activation it says nothing.
 * With it as without, C may be D. */
struct concert_gemm_body {
  uint32_t m, n, k;
  uint32_t batch; /* >= 1 */
  struct concert_operand a, w, c, d, bias;
  uint64_t lda, ldw, ldc, ldd;
  uint64_t stride_a, stride_w, stride_c, stride_d;
  float alpha, beta;
  uint8_t dtype;      /* of A and W */
  uint8_t activation; /* concert_activation_abi */
  uint16_t flags;
  uint8_t d_dtype; /* of C, D and bias. fp8: bf16 or fp16; else 0 or `dtype` */
  uint8_t reserved0[3];
  uint64_t a_scales_offset, w_scales_offset; /* in the buffers a.scales and w.scales */
};

static_assert(sizeof(struct concert_gemm_body) == 192, "ABI");
CONCERT_ABI_ASSERT(concert_gemm_body, m, 0);
CONCERT_ABI_ASSERT(concert_gemm_body, n, 4);
CONCERT_ABI_ASSERT(concert_gemm_body, k, 8);
CONCERT_ABI_ASSERT(concert_gemm_body, batch, 12);
CONCERT_ABI_ASSERT(concert_gemm_body, a, 16);
CONCERT_ABI_ASSERT(concert_gemm_body, w, 32);
CONCERT_ABI_ASSERT(concert_gemm_body, c, 48);
CONCERT_ABI_ASSERT(concert_gemm_body, d, 64);
CONCERT_ABI_ASSERT(concert_gemm_body, bias, 80);
CONCERT_ABI_ASSERT(concert_gemm_body, lda, 96);
CONCERT_ABI_ASSERT(concert_gemm_body, stride_a, 128);
CONCERT_ABI_ASSERT(concert_gemm_body, alpha, 160);
CONCERT_ABI_ASSERT(concert_gemm_body, beta, 164);
CONCERT_ABI_ASSERT(concert_gemm_body, dtype, 168);
CONCERT_ABI_ASSERT(concert_gemm_body, activation, 169);
CONCERT_ABI_ASSERT(concert_gemm_body, flags, 170);
CONCERT_ABI_ASSERT(concert_gemm_body, d_dtype, 172);
CONCERT_ABI_ASSERT(concert_gemm_body, a_scales_offset, 176);
CONCERT_ABI_ASSERT(concert_gemm_body, w_scales_offset, 184);

#endif  // CONCERT_PROTO_RING_OPS_GEMM_H_
