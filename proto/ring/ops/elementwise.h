// The body of what is done to each element for itself.
#ifndef CONCERT_PROTO_RING_OPS_ELEMENTWISE_H_
#define CONCERT_PROTO_RING_OPS_ELEMENTWISE_H_

#include "proto/ring/ops/operand.h"

enum concert_elementwise_abi {
  CONCERT_ABI_ADD = 1,
  CONCERT_ABI_MULTIPLY = 2,
  CONCERT_ABI_CAST = 3, /* of x alone; with the same dtype, a copy of rows */
};

/* out[r,c] = x[r,c] + y[r,c], x[r,c] * y[r,c] or x[r,c], for `rows` rows of `columns` elements, computed in fp32 and
 * rounded once, to out_dtype. Row strides are in elements; y_stride 0: all rows of x meet the same row of y. */
struct concert_elementwise_body {
  uint32_t rows, columns;
  struct concert_operand x, y, out; /* a cast ignores y */
  uint64_t x_stride, y_stride, out_stride;
  uint8_t function;  /* concert_elementwise_abi */
  uint8_t dtype;     /* of x and y; never fp8 */
  uint8_t out_dtype; /* of out; never fp8 */
  uint8_t reserved0;
  uint32_t reserved1;
  uint64_t reserved2[13];
};

static_assert(sizeof(struct concert_elementwise_body) == CONCERT_BODY_BYTES, "ABI");
CONCERT_ABI_ASSERT(concert_elementwise_body, rows, 0);
CONCERT_ABI_ASSERT(concert_elementwise_body, columns, 4);
CONCERT_ABI_ASSERT(concert_elementwise_body, x, 8);
CONCERT_ABI_ASSERT(concert_elementwise_body, out, 40);
CONCERT_ABI_ASSERT(concert_elementwise_body, x_stride, 56);
CONCERT_ABI_ASSERT(concert_elementwise_body, function, 80);
CONCERT_ABI_ASSERT(concert_elementwise_body, out_dtype, 82);

#endif  // CONCERT_PROTO_RING_OPS_ELEMENTWISE_H_
