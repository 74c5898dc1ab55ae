// A cache of keys and values with addresses, shared by host and device code.
#ifndef CONCERT_KERNELS_KV_CACHE_H_
#define CONCERT_KERNELS_KV_CACHE_H_

#include <cstdint>

#include "kernels/gemm/gemm_args.h"
#include "kernels/indices.h"

namespace concert::kernels {

// Where a token of a sequence is.
struct KvPlace {
  uint64_t page;
  uint32_t token;  // of the page
};

// As concert_kv_cache_abi, with the dtype that it has.
struct KvCacheArgs {
  Address k, v;
  uint64_t page_stride;  // this and the others in elements
  uint32_t pages, page_size;
  uint32_t token_stride, head_stride;
  Dtype dtype;
  float k_scale, v_scale;  // what elements are multiplied by; 1 but of fp8

  bool operator==(const KvCacheArgs&) const = default;
  CONCERT_ON_BOTH_SIDES uint64_t tokens() const { return uint64_t{pages} * page_size; }
  // The element of k and of v at which head 0 of this token begins.
  CONCERT_ON_BOTH_SIDES uint64_t TokenAt(uint64_t page, uint64_t token) const {
    return page * page_stride + token * token_stride;
  }
  // The same of the token of a slot, which is one of tokens(). `Slot`: uint32_t wherever that is
  // enough, since a GPU divides 64 bits in a hundred instructions.
  template <typename Slot>
  CONCERT_ON_BOTH_SIDES uint64_t SlotAt(Slot slot) const {
    const Slot page = slot / page_size;
    return TokenAt(page, slot - page * page_size);
  }
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_KV_CACHE_H_
