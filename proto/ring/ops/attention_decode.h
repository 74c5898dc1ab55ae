// The body of attention of one token of each sequence over what its cache holds.
#ifndef CONCERT_PROTO_RING_OPS_ATTENTION_DECODE_H_
#define CONCERT_PROTO_RING_OPS_ATTENTION_DECODE_H_

#include "proto/ring/ops/kv_cache.h"
#include "proto/ring/ops/operand.h"

/* For `rows` sequences and each head h of q: out = softmax(cap(scale * q * K^T)) * V over the last `window` (0: all) of
 * the sequence's lengths[r] tokens, K and V being those of head h / (q_heads / kv_heads) of the cache; cap(s) is
 * soft_cap * tanh(s / soft_cap), with soft_cap 0 s. A row of q and of out has q_heads * head_dim elements.
 *
 * Token t of sequence r is token t % page_size of page pages_of[r][t / page_size], pages_of being an int32 table with
 * rows of table_stride; without a table (buffer 0) sequence r has page r for itself.
 *
 * Pages and lengths (int32) are read when the op runs and taken for the nearest in range: pages of those there are,
 * lengths from 0, which gives a row of zeros, to length_max. length_max is also what the op is expected to cost. */
struct concert_attention_decode_body {
  uint32_t rows, length_max;
  uint16_t q_heads, kv_heads, head_dim, reserved0;
  struct concert_operand q, page_table, lengths, out;
  struct concert_kv_cache_abi cache;
  uint32_t q_stride, out_stride; /* of rows, in elements */
  uint32_t table_stride, window;
  float scale, soft_cap;
  uint8_t dtype;       /* of all but table and lengths, and of the cache if it has none of its own: bf16 */
  uint8_t cache_dtype; /* 0, bf16 or fp8_e4m3 */
  uint8_t reserved1[6];
  uint64_t reserved2[3];
};

static_assert(sizeof(struct concert_attention_decode_body) == CONCERT_BODY_BYTES, "ABI");
CONCERT_ABI_ASSERT(concert_attention_decode_body, rows, 0);
CONCERT_ABI_ASSERT(concert_attention_decode_body, q_heads, 8);
CONCERT_ABI_ASSERT(concert_attention_decode_body, q, 16);
CONCERT_ABI_ASSERT(concert_attention_decode_body, lengths, 48);
CONCERT_ABI_ASSERT(concert_attention_decode_body, cache, 80);
CONCERT_ABI_ASSERT(concert_attention_decode_body, q_stride, 136);
CONCERT_ABI_ASSERT(concert_attention_decode_body, window, 148);
CONCERT_ABI_ASSERT(concert_attention_decode_body, scale, 152);
CONCERT_ABI_ASSERT(concert_attention_decode_body, dtype, 160);
CONCERT_ABI_ASSERT(concert_attention_decode_body, cache_dtype, 161);

#endif  // CONCERT_PROTO_RING_OPS_ATTENTION_DECODE_H_
