// Caches of keys and values in descriptors.
#ifndef CONCERT_CLIENT_SRC_ENCODE_KV_CACHE_H_
#define CONCERT_CLIENT_SRC_ENCODE_KV_CACHE_H_

#include <cstdint>

#include "client/src/encode/fields.h"

namespace concert::client {

// concert.h: strides of 0 are those of heads side by side in tokens, without gaps.
inline concert_kv_cache_abi Cache(const concert_kv_cache& cache, uint16_t heads,
                                  uint16_t head_dim) {
  const uint32_t token = uint32_t{heads} * head_dim;
  concert_kv_cache_abi abi{};
  abi.k = Operand(cache.k);
  abi.v = Operand(cache.v);
  abi.pages = cache.pages;
  abi.page_size = cache.page_size;
  abi.head_stride = cache.head_stride != 0 ? cache.head_stride : head_dim;
  abi.token_stride = cache.token_stride != 0 ? cache.token_stride : token;
  abi.page_stride = OrTight(cache.page_stride, uint64_t{cache.page_size} * token);
  return abi;
}

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_ENCODE_KV_CACHE_H_
