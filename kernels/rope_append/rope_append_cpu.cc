// The reference rotary embedding and append.
#include <algorithm>

#include "kernels/cpu_element.h"
#include "kernels/rope_append/rope_append_op.h"

namespace concert::kernels {
namespace {

// One head, from `head` to `out`, which may be the same.
template <typename T>
void RotateHead(const RopeAppendArgs& args, const float* cos_sin, const T* head, T* out) {
  const uint32_t half = args.rotary_dim / 2;
  for (uint32_t i = 0; i < half; ++i) {
    const uint32_t first = args.interleaved ? 2 * i : i;
    const uint32_t second = args.interleaved ? 2 * i + 1 : i + half;
    const auto x = static_cast<float>(head[first]), y = static_cast<float>(head[second]);
    out[first] = static_cast<T>(x * cos_sin[i] - y * cos_sin[half + i]);
    out[second] = static_cast<T>(y * cos_sin[i] + x * cos_sin[half + i]);
  }
  std::copy(head + args.rotary_dim, head + args.head_dim, out + args.rotary_dim);
}

template <typename T>
void RotateAndAppend(const RopeAppendArgs& args, uint64_t row) {
  const KvCacheArgs& cache = args.cache;
  const uint64_t position =
      Clamped(LoadIndex(args.positions, row, args.position_type), args.positions_max);
  const auto* cos_sin = RowAt<const float>(args.cos_sin, position, args.rotary_dim);
  T* q = RowAt<T>(args.q, row, args.q_stride);
  for (uint32_t head = 0; head < args.q_heads; ++head, q += args.head_dim) {
    RotateHead(args, cos_sin, q, q);
  }
  const int64_t index = LoadIndex(args.slots, row, args.slot_type);
  if (index < 0) return;
  const uint64_t slot = Clamped(index, cache.tokens());
  uint64_t at = cache.TokenAt(slot / cache.page_size, slot % cache.page_size);
  const T* k = RowAt<T>(args.k, row, args.k_stride);
  const T* v = RowAt<T>(args.v, row, args.v_stride);
  for (uint32_t head = 0; head < args.kv_heads; ++head) {
    RotateHead(args, cos_sin, k, RowAt<T>(cache.k, 1, at));
    std::copy_n(v, args.head_dim, RowAt<T>(cache.v, 1, at));
    k += args.head_dim, v += args.head_dim, at += cache.head_stride;
  }
}

}  // namespace

void ComputeRopeAppend(std::span<const Op* const> parts) {
  const RopeAppendArgs& args = parts[0]->rope_append;
  WithElement(args.dtype, [&](auto zero) {
    for (uint64_t row = 0; row < args.rows; ++row) RotateAndAppend<decltype(zero)>(args, row);
  });
}

}  // namespace concert::kernels
