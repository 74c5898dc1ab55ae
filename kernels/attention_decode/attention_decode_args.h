// Attention of a decode step with addresses, shared by host and device code.
#ifndef CONCERT_KERNELS_ATTENTION_DECODE_ATTENTION_DECODE_ARGS_H_
#define CONCERT_KERNELS_ATTENTION_DECODE_ATTENTION_DECODE_ARGS_H_

#include <cstdint>

#include "kernels/gemm/gemm_args.h"
#include "kernels/indices.h"
#include "kernels/kv_cache.h"

namespace concert::kernels {

// Heads of q that share one of the cache, at most.
inline constexpr uint32_t kMaxHeadGroup = 8;
// Of attention; there are 64, 128 and this.
inline constexpr uint32_t kMaxAttentionHeadDim = 256;

// As concert_attention_decode_body; page_table 0: none. All elements are bf16, but for a cache in
// e4m3.
struct AttentionDecodeArgs {
  uint32_t rows, length_max;
  uint16_t q_heads, kv_heads, head_dim;
  Address q, page_table, lengths, out;
  KvCacheArgs cache;
  uint32_t q_stride, out_stride, table_stride;  // elements
  uint32_t window;
  float scale;  // with that of the cache's keys, which q times a key's element lacks
  float soft_cap;

  bool operator==(const AttentionDecodeArgs&) const = default;
  // Tokens that a row looks at, at most.
  CONCERT_ON_BOTH_SIDES uint32_t span_max() const {
    return window != 0 && window < length_max ? window : length_max;
  }
  CONCERT_ON_BOTH_SIDES uint32_t LengthOf(uint64_t row) const {
    return static_cast<uint32_t>(
        Clamped(LoadIndex(lengths, row, IndexType::kInt32), uint64_t{length_max} + 1));
  }
  // What the client says of which of the cache's pages a row's page `page` is. In 32 bits, so that
  // whoever asks ahead waits for nothing.
  CONCERT_ON_BOTH_SIDES int32_t RawPageOf(uint64_t row, uint32_t page) const {
    if (page_table == 0) return static_cast<int32_t>(row);
    return reinterpret_cast<const volatile int32_t*>(page_table)[row * table_stride + page];
  }
  // Which it is.
  CONCERT_ON_BOTH_SIDES uint64_t PageOf(uint64_t row, uint32_t page) const {
    return Clamped(RawPageOf(row, page), cache.pages);
  }
  CONCERT_ON_BOTH_SIDES KvPlace PlaceOf(uint64_t row, uint32_t token) const {
    const uint32_t page = token / cache.page_size;
    return {PageOf(row, page), token - page * cache.page_size};
  }
  // The element of k and of v at which head 0 of a row's token begins.
  CONCERT_ON_BOTH_SIDES uint64_t TokenAt(uint64_t row, uint32_t token) const {
    const KvPlace place = PlaceOf(row, token);
    return cache.TokenAt(place.page, place.token);
  }
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_ATTENTION_DECODE_ATTENTION_DECODE_ARGS_H_
