// Keys and values of a layer, of all sequences: an operand of several kinds of op.
#ifndef CONCERT_PROTO_RING_OPS_KV_CACHE_H_
#define CONCERT_PROTO_RING_OPS_KV_CACHE_H_

#include "proto/ring/ops/operand.h"

/* `pages` pages of `page_size` tokens. Of both k and v, element i of head h of token t of page p is at
 * p * page_stride + t * token_stride + h * head_stride + i, in elements: so tokens may lie in heads or heads in tokens,
 * and pages of k and v may take turns. A cache without pages has one page for each sequence.
 *
 * Its elements have the dtype that the body's cache_dtype says, 0: that of the op. Those of a cache in fp8_e4m3 are
 * meant times a scale, one for k and one for v, which are with the op by value: k.scales and v.scales are the bits of a
 * number in fp32, finite and at least 2^-126; 0: 1. Of a cache in another dtype they are 0. All this is understood by
 * daemons with CONCERT_FEATURE_FP8_KV. */
struct concert_kv_cache_abi {
  struct concert_operand k, v;
  uint64_t page_stride;
  uint32_t pages, page_size;
  uint32_t token_stride, head_stride;
};

static_assert(sizeof(struct concert_kv_cache_abi) == 56, "ABI");
CONCERT_ABI_ASSERT(concert_kv_cache_abi, v, 16);
CONCERT_ABI_ASSERT(concert_kv_cache_abi, page_stride, 32);
CONCERT_ABI_ASSERT(concert_kv_cache_abi, pages, 40);
CONCERT_ABI_ASSERT(concert_kv_cache_abi, page_size, 44);
CONCERT_ABI_ASSERT(concert_kv_cache_abi, token_stride, 48);
CONCERT_ABI_ASSERT(concert_kv_cache_abi, head_stride, 52);

#endif  // CONCERT_PROTO_RING_OPS_KV_CACHE_H_
