// Admission of caches of keys and values.
#ifndef CONCERT_KERNELS_KV_CACHE_OPERAND_H_
#define CONCERT_KERNELS_KV_CACHE_OPERAND_H_

#include <bit>
#include <cstdint>
#include <optional>

#include "kernels/access.h"
#include "kernels/kv_cache.h"
#include "kernels/row_matrix.h"
#include "kernels/validate.h"

namespace concert::kernels {

inline constexpr uint64_t kMaxHeads = 1024;
inline constexpr uint64_t kMaxHeadDim = 1024;
inline constexpr uint64_t kMaxPages = 1 << 24;
inline constexpr uint64_t kMaxPageSize = 1 << 24;  // tokens

// It is the keys or the values.
constexpr bool IsOfKvCache(concert_field field) {
  return field == CONCERT_FIELD_K_CACHE || field == CONCERT_FIELD_V_CACHE;
}

// What of a token lies in a cache.
struct KvHeads {
  uint32_t count, dim;
};

// Elements from a page's first to its last. Cannot overflow within the limits above.
inline uint64_t PageElements(uint32_t page_size, uint32_t token_stride, uint32_t head_stride,
                             KvHeads heads) {
  return uint64_t{page_size - 1} * token_stride + uint64_t{heads.count - 1} * head_stride +
         heads.dim;
}

// That of a body's cache. REQUIRES: CheckCacheDtype has found nothing.
template <typename Body>
Dtype CacheDtype(const Body& body) {
  return static_cast<Dtype>(body.cache_dtype == 0 ? body.dtype : body.cache_dtype);
}

// Of one scale, by its bits.
inline Failure CheckCacheScale(concert_field field, uint32_t bits, Dtype cache_dtype) {
  // What is subnormal, whose reciprocal may be infinite, lies below; what is negative or no number
  // at or above.
  constexpr uint32_t kLeastNormal = 0x00800000u, kInfinity = 0x7f800000u;
  if (bits == 0) return {};
  if (cache_dtype != Dtype::kFp8E4m3) {
    return InvalidArgument(CONCERT_MESSAGE_CACHE_SCALE_UNUSED, field, bits,
                           static_cast<uint64_t>(cache_dtype));
  }
  if (bits >= kLeastNormal && bits < kInfinity) return {};
  return InvalidArgument(CONCERT_MESSAGE_CACHE_SCALE, field, bits);
}

// What a body says of its cache's elements. REQUIRES: its dtype has been checked.
template <typename Body>
Failure CheckCacheDtype(const Body& body) {
  if (body.cache_dtype != 0 && body.cache_dtype != body.dtype &&
      body.cache_dtype != CONCERT_ABI_FP8_E4M3) {
    return InvalidArgument(CONCERT_MESSAGE_CACHE_DTYPE, body.cache_dtype, body.dtype,
                           CONCERT_ABI_FP8_E4M3);
  }
  const Dtype dtype = CacheDtype(body);
  CONCERT_RETURN_IF_FAILED(CheckCacheScale(CONCERT_FIELD_K_SCALE, body.cache.k.scales, dtype));
  return CheckCacheScale(CONCERT_FIELD_V_SCALE, body.cache.v.scales, dtype);
}

inline float CacheScale(const concert_operand& operand) {
  return operand.scales == 0 ? 1 : std::bit_cast<float>(operand.scales);
}

// Resolves k and v, in this order, after a look at sizes. `unit` as ResolveRows'. REQUIRES: 1 to
// kMaxHeads heads of 1 to kMaxHeadDim elements; `unit` divides these and strides.
inline Failure ResolveKvCache(OperandResolver& resolver, const concert_kv_cache_abi& cache,
                              KvHeads heads, Dtype dtype, KvCacheArgs& args, uint32_t unit = 1) {
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_PAGES, cache.pages, 1, kMaxPages));
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_PAGE_SIZE, cache.page_size, 1, kMaxPageSize));
  const std::optional<uint64_t> units = Units(
      SpanElements(cache.pages,
                   PageElements(cache.page_size, cache.token_stride, cache.head_stride, heads),
                   cache.page_stride, /*batch=*/1, /*batch_stride=*/0),
      unit);
  ByteRange k, v;
  CONCERT_RETURN_IF_FAILED(
      resolver.Resolve(CONCERT_FIELD_K_CACHE, cache.k, units, unit * DtypeBytes(dtype), k));
  CONCERT_RETURN_IF_FAILED(
      resolver.Resolve(CONCERT_FIELD_V_CACHE, cache.v, units, unit * DtypeBytes(dtype), v));
  args = {.k = k.begin,
          .v = v.begin,
          .page_stride = cache.page_stride,
          .pages = cache.pages,
          .page_size = cache.page_size,
          .token_stride = cache.token_stride,
          .head_stride = cache.head_stride,
          .dtype = dtype,
          .k_scale = CacheScale(cache.k),
          .v_scale = CacheScale(cache.v)};
  return {};
}

// Adds k and v, page by page.
inline void AddKvCache(Accesses& accesses, const Op& op, const KvCacheArgs& args, KvHeads heads,
                       AccessMode mode) {
  const uint64_t element = DtypeBytes(args.dtype);
  const uint64_t page_bytes =
      PageElements(args.page_size, args.token_stride, args.head_stride, heads) * element;
  accesses.Add(op, CONCERT_FIELD_K_CACHE, mode)
      .Set(args.k, page_bytes, args.pages, args.page_stride * element);
  accesses.Add(op, CONCERT_FIELD_V_CACHE, mode)
      .Set(args.v, page_bytes, args.pages, args.page_stride * element);
}

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_KV_CACHE_OPERAND_H_
