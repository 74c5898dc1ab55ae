// The body of an RMS norm (Zhang and Sennrich, arXiv:1910.07467).
#ifndef CONCERT_PROTO_RING_OPS_RMS_NORM_H_
#define CONCERT_PROTO_RING_OPS_RMS_NORM_H_

#include "proto/ring/ops/operand.h"

/* Bits of concert_rms_norm_body.flags. */
#define CONCERT_RMS_NORM_CAST_FIRST (1u << 0)

/* out[r,c] = weight[c] * x[r,c] / sqrt(mean(x[r,:]^2) + epsilon) for `rows` rows of `columns` elements, each
 * computed in fp32. Row strides are in elements.
 *
 * With a residual, residual = x + residual first, rounded to its dtype and written back; then that is what is
 * normalised. Without the flag the result is rounded once; with it the normalised row is rounded to the dtype before it
 * is multiplied by the weight, as models do whose weights were trained so. */
struct concert_rms_norm_body {
  uint32_t rows, columns;
  struct concert_operand x, residual, weight, out; /* residual may be none */
  uint64_t x_stride, residual_stride, out_stride;
  float epsilon;
  uint8_t dtype; /* of all operands; never fp8 */
  uint8_t reserved0;
  uint16_t flags;
  uint64_t reserved1[11];
};

static_assert(sizeof(struct concert_rms_norm_body) == CONCERT_BODY_BYTES, "ABI");
CONCERT_ABI_ASSERT(concert_rms_norm_body, rows, 0);
CONCERT_ABI_ASSERT(concert_rms_norm_body, columns, 4);
CONCERT_ABI_ASSERT(concert_rms_norm_body, x, 8);
CONCERT_ABI_ASSERT(concert_rms_norm_body, residual, 24);
CONCERT_ABI_ASSERT(concert_rms_norm_body, weight, 40);
CONCERT_ABI_ASSERT(concert_rms_norm_body, out, 56);
CONCERT_ABI_ASSERT(concert_rms_norm_body, x_stride, 72);
CONCERT_ABI_ASSERT(concert_rms_norm_body, epsilon, 96);
CONCERT_ABI_ASSERT(concert_rms_norm_body, dtype, 100);
CONCERT_ABI_ASSERT(concert_rms_norm_body, flags, 102);

#endif  // CONCERT_PROTO_RING_OPS_RMS_NORM_H_
