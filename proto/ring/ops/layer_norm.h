// The body of a layer norm (Ba et al., arXiv:1607.06450).
#ifndef CONCERT_PROTO_RING_OPS_LAYER_NORM_H_
#define CONCERT_PROTO_RING_OPS_LAYER_NORM_H_

#include "proto/ring/ops/operand.h"

/* out[r,c] = weight[c] * (x[r,c] - mean) / sqrt(variance + epsilon) + bias[c], mean and variance (of all, not of a
 * sample) being row r's, for `rows` rows of `columns` elements, computed in fp32 and rounded once. Row strides are in
 * elements. With a residual, residual = x + residual first, rounded to its dtype and written back; then that is what is
 * normalised. */
struct concert_layer_norm_body {
  uint32_t rows, columns;
  struct concert_operand x, residual, weight, bias, out; /* residual and bias may be none */
  uint64_t x_stride, residual_stride, out_stride;
  float epsilon;
  uint8_t dtype; /* of all operands; never fp8 */
  uint8_t reserved0[3];
  uint64_t reserved1[9];
};

static_assert(sizeof(struct concert_layer_norm_body) == CONCERT_BODY_BYTES, "ABI");
CONCERT_ABI_ASSERT(concert_layer_norm_body, rows, 0);
CONCERT_ABI_ASSERT(concert_layer_norm_body, columns, 4);
CONCERT_ABI_ASSERT(concert_layer_norm_body, x, 8);
CONCERT_ABI_ASSERT(concert_layer_norm_body, bias, 56);
CONCERT_ABI_ASSERT(concert_layer_norm_body, x_stride, 88);
CONCERT_ABI_ASSERT(concert_layer_norm_body, epsilon, 112);
CONCERT_ABI_ASSERT(concert_layer_norm_body, dtype, 116);

#endif  // CONCERT_PROTO_RING_OPS_LAYER_NORM_H_
