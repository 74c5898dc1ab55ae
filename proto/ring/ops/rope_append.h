// The body of rotary embedding and append (Su et al., arXiv:2104.09864).
#ifndef CONCERT_PROTO_RING_OPS_ROPE_APPEND_H_
#define CONCERT_PROTO_RING_OPS_ROPE_APPEND_H_

#include "proto/ring/ops/kv_cache.h"
#include "proto/ring/ops/operand.h"

/* Bits of concert_rope_append_body.flags. */
#define CONCERT_ROPE_INTERLEAVED (1u << 0)

/* For `rows` tokens: rotates the heads of q, in place, and those of k by the token's position, and writes k and v to
 * the token's slot of the cache: page slot / page_size, token slot % page_size.
 *
 * A row of q has q_heads * head_dim elements, of k and v kv_heads * head_dim; the three may be parts of one matrix.
 * (x, y) becomes (x * cos - y * sin, y * cos + x * sin), in fp32 and rounded once, for elements i and
 * i + rotary_dim / 2 of a head, with the flag 2i and 2i + 1, for i below rotary_dim / 2; other elements stay. Cosine
 * and sine are elements i and rotary_dim / 2 + i of the position's row in cos_sin: `positions_max` rows of rotary_dim
 * numbers in fp32. A cache in fp8_e4m3 gets these before they are rounded, and v, times the reciprocal of its
 * scale in fp32, then rounded once; what is beyond 448 becomes 448.
 *
 * Positions and slots are read when the op runs and taken for the nearest in range, but for slots below 0: such a row
 * is padding, of which the cache gets nothing. */
struct concert_rope_append_body {
  uint32_t rows, positions_max;
  uint16_t q_heads, kv_heads, head_dim, rotary_dim;
  struct concert_operand q, k, v, positions, slots, cos_sin;
  struct concert_kv_cache_abi cache;
  uint32_t q_stride, k_stride, v_stride; /* of rows, in elements */
  uint8_t dtype;                         /* of q, k and v; never fp8 */
  uint8_t position_dtype, slot_dtype;    /* int32 or int64 */
  uint8_t cache_dtype;                   /* 0, dtype or fp8_e4m3 */
  uint16_t flags, reserved0;
  uint32_t reserved1;
};

static_assert(sizeof(struct concert_rope_append_body) == CONCERT_BODY_BYTES, "ABI");
CONCERT_ABI_ASSERT(concert_rope_append_body, rows, 0);
CONCERT_ABI_ASSERT(concert_rope_append_body, q_heads, 8);
CONCERT_ABI_ASSERT(concert_rope_append_body, q, 16);
CONCERT_ABI_ASSERT(concert_rope_append_body, positions, 64);
CONCERT_ABI_ASSERT(concert_rope_append_body, cos_sin, 96);
CONCERT_ABI_ASSERT(concert_rope_append_body, cache, 112);
CONCERT_ABI_ASSERT(concert_rope_append_body, q_stride, 168);
CONCERT_ABI_ASSERT(concert_rope_append_body, dtype, 180);
CONCERT_ABI_ASSERT(concert_rope_append_body, cache_dtype, 183);
CONCERT_ABI_ASSERT(concert_rope_append_body, flags, 184);

#endif  // CONCERT_PROTO_RING_OPS_ROPE_APPEND_H_
