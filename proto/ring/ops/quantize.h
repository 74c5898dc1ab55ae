// The body of a quantisation.
#ifndef CONCERT_PROTO_RING_OPS_QUANTIZE_H_
#define CONCERT_PROTO_RING_OPS_QUANTIZE_H_

#include "proto/ring/ops/operand.h"

/* scales[r] = max(|x[r,:]|) / 448 and out[r,c] = x[r,c] / scales[r], for `rows` rows of `columns` elements: both in
 * fp32, and out rounded once, to nearest even, to FP8_E4M3, whose largest number is 448. So out and scales are what a
 * GEMM takes as A with CONCERT_GEMM_A_SCALES_PER_ROW, or as W. Row strides are in elements; scales have no gaps.
 *
 * A scale is at least 2^-126, the least that is no subnormal, and that of zeros is that. A row with a NaN or an
 * infinity becomes NaN, all of it: elements (0x7f) and scale. */
struct concert_quantize_body {
  uint32_t rows, columns;
  struct concert_operand x, out, scales;
  uint64_t x_stride, out_stride;
  uint8_t dtype; /* of x; never fp8 */
  uint8_t reserved0;
  uint16_t reserved1;
  uint32_t reserved2;
  uint64_t reserved3[14];
};

static_assert(sizeof(struct concert_quantize_body) == CONCERT_BODY_BYTES, "ABI");
CONCERT_ABI_ASSERT(concert_quantize_body, rows, 0);
CONCERT_ABI_ASSERT(concert_quantize_body, columns, 4);
CONCERT_ABI_ASSERT(concert_quantize_body, x, 8);
CONCERT_ABI_ASSERT(concert_quantize_body, out, 24);
CONCERT_ABI_ASSERT(concert_quantize_body, scales, 40);
CONCERT_ABI_ASSERT(concert_quantize_body, x_stride, 56);
CONCERT_ABI_ASSERT(concert_quantize_body, dtype, 72);

#endif  // CONCERT_PROTO_RING_OPS_QUANTIZE_H_
