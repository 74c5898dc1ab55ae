// The body of attention of new tokens of each sequence over what its cache holds, they included.
#ifndef CONCERT_PROTO_RING_OPS_ATTENTION_PREFILL_H_
#define CONCERT_PROTO_RING_OPS_ATTENTION_PREFILL_H_

#include "proto/ring/ops/kv_cache.h"
#include "proto/ring/ops/operand.h"

/* As concert_attention_decode_body, for a chunk of each of `sequences` sequences. q and out have `tokens` rows; the
 * chunk of sequence s is rows query_starts[s] to query_starts[s + 1] - 1; rows of no chunk are neither read nor
 * written. Row i of a chunk of n attends to the first lengths[s] - n + i + 1 tokens of the sequence, of these to the
 * last `window` (0: all), so that lengths count the chunk, too; where there are none it becomes zeros.
 *
 * Starts (sequences + 1), pages and lengths (all int32) are read when the op runs and taken for the nearest in range:
 * starts from 0 to tokens. A chunk that ends before it begins has no rows; what is in two chunks becomes what it is in
 * one of them. The op is expected to cost as if all sequences had length_max tokens, and as many new ones each. */
struct concert_attention_prefill_body {
  uint32_t tokens, sequences;
  uint16_t q_heads, kv_heads, head_dim, reserved0;
  struct concert_operand q, query_starts, page_table, lengths, out;
  struct concert_kv_cache_abi cache;
  uint32_t q_stride, out_stride; /* of rows, in elements */
  uint32_t table_stride, window;
  float scale, soft_cap;
  uint32_t length_max;
  uint8_t dtype;       /* of all but starts, table and lengths, and of the cache if it has none of its own: bf16 */
  uint8_t cache_dtype; /* 0, bf16 or fp8_e4m3 */
  uint8_t reserved1[2];
  uint64_t reserved2;
};

static_assert(sizeof(struct concert_attention_prefill_body) == CONCERT_BODY_BYTES, "ABI");
CONCERT_ABI_ASSERT(concert_attention_prefill_body, tokens, 0);
CONCERT_ABI_ASSERT(concert_attention_prefill_body, q_heads, 8);
CONCERT_ABI_ASSERT(concert_attention_prefill_body, q, 16);
CONCERT_ABI_ASSERT(concert_attention_prefill_body, query_starts, 32);
CONCERT_ABI_ASSERT(concert_attention_prefill_body, out, 80);
CONCERT_ABI_ASSERT(concert_attention_prefill_body, cache, 96);
CONCERT_ABI_ASSERT(concert_attention_prefill_body, q_stride, 152);
CONCERT_ABI_ASSERT(concert_attention_prefill_body, window, 164);
CONCERT_ABI_ASSERT(concert_attention_prefill_body, scale, 168);
CONCERT_ABI_ASSERT(concert_attention_prefill_body, length_max, 176);
CONCERT_ABI_ASSERT(concert_attention_prefill_body, dtype, 180);
CONCERT_ABI_ASSERT(concert_attention_prefill_body, cache_dtype, 181);

#endif  // CONCERT_PROTO_RING_OPS_ATTENTION_PREFILL_H_
