// The body of an argmax.
#ifndef CONCERT_PROTO_RING_OPS_ARGMAX_H_
#define CONCERT_PROTO_RING_OPS_ARGMAX_H_

#include "proto/ring/ops/operand.h"

/* indices[r] = where x[r,:] is largest, for `rows` rows of `columns` elements; of equals the first. NaN is larger than
 * everything, as PyTorch has it. The row stride is in elements. */
struct concert_argmax_body {
  uint32_t rows, columns;
  struct concert_operand x, indices;
  uint64_t x_stride;
  uint8_t dtype;       /* of x; never fp8 */
  uint8_t index_dtype; /* of indices: int32 or int64 */
  uint16_t reserved0;
  uint32_t reserved1;
  uint64_t reserved2[17];
};

static_assert(sizeof(struct concert_argmax_body) == CONCERT_BODY_BYTES, "ABI");
CONCERT_ABI_ASSERT(concert_argmax_body, rows, 0);
CONCERT_ABI_ASSERT(concert_argmax_body, columns, 4);
CONCERT_ABI_ASSERT(concert_argmax_body, x, 8);
CONCERT_ABI_ASSERT(concert_argmax_body, indices, 24);
CONCERT_ABI_ASSERT(concert_argmax_body, x_stride, 40);
CONCERT_ABI_ASSERT(concert_argmax_body, dtype, 48);
CONCERT_ABI_ASSERT(concert_argmax_body, index_dtype, 49);

#endif  // CONCERT_PROTO_RING_OPS_ARGMAX_H_
