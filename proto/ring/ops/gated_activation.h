// The body of a gated activation (SwiGLU and its like: Shazeer, arXiv:2002.05202).
#ifndef CONCERT_PROTO_RING_OPS_GATED_ACTIVATION_H_
#define CONCERT_PROTO_RING_OPS_GATED_ACTIVATION_H_

#include "proto/ring/ops/operand.h"

/* Bits of concert_gated_activation_body.flags. */
#define CONCERT_GATED_INTERLEAVED (1u << 0)

/* out[r,c] = act(gate[r,c]) * up[r,c] for `rows` rows of `columns` elements, computed in fp32 and rounded once. A
 * row of x has 2 * columns elements: gate's and then up's, or, with the flag, gate[r,0], up[r,0], gate[r,1], ...
 * Row strides are in elements. */
struct concert_gated_activation_body {
  uint32_t rows, columns;
  struct concert_operand x, out;
  uint64_t x_stride, out_stride;
  uint8_t dtype;      /* of both; never fp8 */
  uint8_t activation; /* silu or gelu */
  uint16_t flags;
  uint32_t reserved0;
  uint64_t reserved1[16];
};

static_assert(sizeof(struct concert_gated_activation_body) == CONCERT_BODY_BYTES, "ABI");
CONCERT_ABI_ASSERT(concert_gated_activation_body, rows, 0);
CONCERT_ABI_ASSERT(concert_gated_activation_body, columns, 4);
CONCERT_ABI_ASSERT(concert_gated_activation_body, x, 8);
CONCERT_ABI_ASSERT(concert_gated_activation_body, out, 24);
CONCERT_ABI_ASSERT(concert_gated_activation_body, x_stride, 40);
CONCERT_ABI_ASSERT(concert_gated_activation_body, dtype, 56);
CONCERT_ABI_ASSERT(concert_gated_activation_body, activation, 57);
CONCERT_ABI_ASSERT(concert_gated_activation_body, flags, 58);

#endif  // CONCERT_PROTO_RING_OPS_GATED_ACTIVATION_H_
