// The body of an embedding.
#ifndef CONCERT_PROTO_RING_OPS_EMBEDDING_H_
#define CONCERT_PROTO_RING_OPS_EMBEDDING_H_

#include "proto/ring/ops/operand.h"

/* out[r,:] = table[ids[r],:] for `rows` rows of `columns` elements; `vocabulary` rows of the table. Row strides are in
 * elements.
 *
 * Ids are read when the op runs: one below 0 gives a row of zeros (padding), one beyond the table its last row. */
struct concert_embedding_body {
  uint32_t rows, columns, vocabulary, reserved0;
  struct concert_operand ids, table, out;
  uint64_t table_stride, out_stride;
  uint8_t dtype;       /* of table and out; never fp8 */
  uint8_t index_dtype; /* of ids: int32 or int64 */
  uint16_t reserved1;
  uint32_t reserved2;
  uint64_t reserved3[13];
};

static_assert(sizeof(struct concert_embedding_body) == CONCERT_BODY_BYTES, "ABI");
CONCERT_ABI_ASSERT(concert_embedding_body, rows, 0);
CONCERT_ABI_ASSERT(concert_embedding_body, vocabulary, 8);
CONCERT_ABI_ASSERT(concert_embedding_body, ids, 16);
CONCERT_ABI_ASSERT(concert_embedding_body, out, 48);
CONCERT_ABI_ASSERT(concert_embedding_body, table_stride, 64);
CONCERT_ABI_ASSERT(concert_embedding_body, dtype, 80);
CONCERT_ABI_ASSERT(concert_embedding_body, index_dtype, 81);

#endif  // CONCERT_PROTO_RING_OPS_EMBEDDING_H_
