// The reference rotary embedding and append.
#include "kernels/cpu_element.h"
#include "kernels/quantize/quantize_args.h"
#include "kernels/rope_append/rope_append_op.h"

namespace concert::kernels {
namespace {

// What is stored of a number: itself, rounded unless it is a T already, or what a cache in e4m3
// gets of it.
template <typename T>
struct Rounder {
  T operator()(auto value) const { return static_cast<T>(value); }
};
struct Quantiser {
  uint8_t operator()(auto value) const { return E4m3Of(static_cast<float>(value) * inverse); }
  float inverse;  // of the scale
};

// One head, from `head` to `out`, which may be the same; elements become what `store` makes of
// them.
template <typename T, typename To, typename Store>
void RotateHead(const RopeAppendArgs& args, const float* cos_sin, const T* head, To* out,
                const Store& store) {
  const uint32_t half = args.rotary_dim / 2;
  for (uint32_t i = 0; i < half; ++i) {
    const uint32_t first = args.interleaved ? 2 * i : i;
    const uint32_t second = args.interleaved ? 2 * i + 1 : i + half;
    const auto x = static_cast<float>(head[first]), y = static_cast<float>(head[second]);
    out[first] = store(x * cos_sin[i] - y * cos_sin[half + i]);
    out[second] = store(y * cos_sin[i] + x * cos_sin[half + i]);
  }
  for (uint32_t i = args.rotary_dim; i < args.head_dim; ++i) out[i] = store(head[i]);
}

// A row's k and v, to the token that begins at element `at` of the cache.
template <typename T, typename Cached, typename Store>
void Append(const RopeAppendArgs& args, const float* cos_sin, uint64_t row, uint64_t at,
            const Store& store_k, const Store& store_v) {
  const T* k = RowAt<T>(args.k, row, args.k_stride);
  const T* v = RowAt<T>(args.v, row, args.v_stride);
  for (uint32_t head = 0; head < args.kv_heads; ++head) {
    RotateHead(args, cos_sin, k, RowAt<Cached>(args.cache.k, 1, at), store_k);
    Cached* const to = RowAt<Cached>(args.cache.v, 1, at);
    for (uint32_t i = 0; i < args.head_dim; ++i) to[i] = store_v(v[i]);
    k += args.head_dim, v += args.head_dim, at += args.cache.head_stride;
  }
}

template <typename T>
void RotateAndAppend(const RopeAppendArgs& args, uint64_t row) {
  const KvCacheArgs& cache = args.cache;
  const uint64_t position =
      Clamped(LoadIndex(args.positions, row, args.position_type), args.positions_max);
  const auto* cos_sin = RowAt<const float>(args.cos_sin, position, args.rotary_dim);
  T* q = RowAt<T>(args.q, row, args.q_stride);
  for (uint32_t head = 0; head < args.q_heads; ++head, q += args.head_dim) {
    RotateHead(args, cos_sin, q, q, Rounder<T>());
  }
  const int64_t index = LoadIndex(args.slots, row, args.slot_type);
  if (index < 0) return;
  const uint64_t at = cache.SlotAt(Clamped(index, cache.tokens()));
  if (cache.dtype == Dtype::kFp8E4m3) {
    Append<T, uint8_t>(args, cos_sin, row, at, Quantiser{1 / cache.k_scale},
                       Quantiser{1 / cache.v_scale});
  } else {
    Append<T, T>(args, cos_sin, row, at, Rounder<T>(), Rounder<T>());
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
