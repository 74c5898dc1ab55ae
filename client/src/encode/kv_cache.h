// Caches of keys and values in descriptors.
#ifndef CONCERT_CLIENT_SRC_ENCODE_KV_CACHE_H_
#define CONCERT_CLIENT_SRC_ENCODE_KV_CACHE_H_

#include <bit>
#include <cstdint>

#include "client/src/encode/encoded_op.h"
#include "client/src/encode/fields.h"

namespace concert::client {

// concert.h: strides of 0 are those of heads side by side in tokens, without gaps.
inline concert_kv_cache_abi Cache(const concert_kv_cache& cache, uint16_t heads, uint16_t head_dim,
                                  EncodedOp* to) {
  const uint32_t token = uint32_t{heads} * head_dim;
  concert_kv_cache_abi abi{};
  abi.k = Operand("k_cache", cache.k, to);
  abi.v = Operand("v_cache", cache.v, to);
  abi.pages = cache.pages;
  abi.page_size = cache.page_size;
  abi.head_stride = cache.head_stride != 0 ? cache.head_stride : head_dim;
  abi.token_stride = cache.token_stride != 0 ? cache.token_stride : token;
  abi.page_stride = OrTight(cache.page_stride, uint64_t{cache.page_size} * token);
  return abi;
}

// What `op` says of its cache's elements, but for what is said by default, which older daemons
// understand, too. After all else of body and features.
template <typename Op, typename Body>
void EncodeCacheElements(const Op& op, Body& body, EncodedOp* to) {
  const auto scale = [](float value) { return value == 1 ? 0 : std::bit_cast<uint32_t>(value); };
  body.cache_dtype = op.cache_dtype == op.dtype ? 0 : Narrow8(op.cache_dtype);
  body.cache.k.scales = scale(op.k_scale);
  body.cache.v.scales = scale(op.v_scale);
  if ((body.cache_dtype | body.cache.k.scales | body.cache.v.scales) == 0) return;
  to->features |= CONCERT_FEATURE_FP8_KV;
  to->needs = "the cache has a dtype or scales of its own";
}

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_ENCODE_KV_CACHE_H_
