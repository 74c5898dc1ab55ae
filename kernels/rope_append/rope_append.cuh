// Rotary embedding and append in the row kernel: a thread takes a pack's number of pairs, which are
// two packs of a head.
#ifndef CONCERT_KERNELS_ROPE_APPEND_ROPE_APPEND_CUH_
#define CONCERT_KERNELS_ROPE_APPEND_ROPE_APPEND_CUH_

#include "kernels/cuda_api/element.cuh"
#include "kernels/rope_append/rope_append_args.h"
#include "kernels/rows/row_threads.cuh"

namespace concert::kernels::cuda {

// A head's way: from element `from` of `source` on to element `to` of `target`; target 0: nowhere.
struct HeadWay {
  Address source, target;
  uint64_t from, to;
  uint32_t head;  // of q's, k's or v's
  bool rotates;
};

// Heads of q come first, then those of k and of v. To where the latter two go their row's slot
// says: Append().
__device__ inline HeadWay WayOf(const RopeAppendArgs& args, uint64_t row, uint32_t head) {
  if (head < args.q_heads) {
    const uint64_t at = row * args.q_stride + head * args.head_dim;
    return {args.q, args.q, at, at, head, true};
  }
  const bool is_k = head < args.q_heads + args.kv_heads;
  head -= is_k ? args.q_heads : args.q_heads + args.kv_heads;
  const uint64_t from = row * (is_k ? args.k_stride : args.v_stride) + head * args.head_dim;
  return {is_k ? args.k : args.v, is_k ? args.cache.k : args.cache.v, from, 0, head, is_k};
}
__device__ inline void Append(const RopeAppendArgs& args, int64_t index, HeadWay& way) {
  if (index < 0) way.target = 0;
  const uint64_t slot = Clamped(index, args.cache.tokens());
  const uint64_t page = Divide(slot, args.cache.page_size);
  way.to = args.cache.TokenAt(page, slot - page * args.cache.page_size) +
           uint64_t{way.head} * args.cache.head_stride;
}

// Rotates the pairs from `pair` on, which are `packs`, by what a row's position says, and hands
// element i of both to store(i, value).
template <typename T, int kWidth, typename Store>
__device__ void RotatePairs(const RopeAppendArgs& args, int64_t position, uint32_t pair,
                            const Pack<T, kWidth> (&packs)[2], const Store& store) {
  const float* cosines = reinterpret_cast<const float*>(args.cos_sin) +
                         Clamped(position, args.positions_max) * args.rotary_dim + pair;
  const float* sines = cosines + args.rotary_dim / 2;
  const auto element = [&](int i) { return ToFloat(packs[i / kWidth].values[i % kWidth]); };
  float x[kWidth], y[kWidth];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float first = args.interleaved ? element(2 * i) : element(i);
    const float second = args.interleaved ? element(2 * i + 1) : element(kWidth + i);
    x[i] = first * cosines[i] - second * sines[i];
    y[i] = second * cosines[i] + first * sines[i];
  }
#pragma unroll
  for (int i = 0; i < 2 * kWidth; ++i) {
    const float alternate = i % 2 == 0 ? x[i / 2] : y[i / 2];
    const float apart = i < kWidth ? x[i % kWidth] : y[i % kWidth];
    store(i, args.interleaved ? alternate : apart);
  }
}

// To a cache in e4m3: from elements way.to + `first` and `second` on. The same bits as E4m3Of makes
// of them.
template <typename T, int kWidth>
__device__ void StoreNarrow(const RopeAppendArgs& args, const HeadWay& way, int64_t position,
                            uint32_t pair, bool rotates, uint32_t first, uint32_t second,
                            const Pack<T, kWidth> (&packs)[2]) {
  const float inverse = __frcp_rn(way.rotates ? args.cache.k_scale : args.cache.v_scale);
  Pack<uint8_t, kWidth> narrow[2];
  const auto store = [&](int i, float x) {
    narrow[i / kWidth].values[i % kWidth] =
        __nv_cvt_float_to_fp8(x * inverse, __NV_SATFINITE, __NV_E4M3);
  };
  if (rotates) {
    RotatePairs<T, kWidth>(args, position, pair, packs, store);
  } else {
#pragma unroll
    for (int i = 0; i < 2 * kWidth; ++i) store(i, ToFloat(packs[i / kWidth].values[i % kWidth]));
  }
  *PackAt<uint8_t, kWidth>(way.target, way.to + first) = narrow[0];
  *PackAt<uint8_t, kWidth>(way.target, way.to + second) = narrow[1];
}

// What falls to block `block` of `blocks`. REQUIRES: kWidth divides strides, half of rotary_dim and
// half of what it leaves of a head, and the operands but indices and cos_sin are aligned to a pack
// of theirs; without kNarrowCaches the cache is not in e4m3.
template <typename T, int kWidth, bool kNarrowCaches>
__device__ void RopeAppend(const RopeAppendArgs& args, uint32_t block, uint32_t blocks) {
  const uint32_t half = args.head_dim / 2, rotary_half = args.rotary_dim / 2;
  const uint32_t heads = args.q_heads + 2 * args.kv_heads;
  ForEachPack<kWidth>(args.rows, heads * half, block, blocks, [&](uint64_t row, uint64_t column) {
    const uint32_t head = static_cast<uint32_t>(column) / half;
    const uint32_t pair = static_cast<uint32_t>(column) - head * half;
    HeadWay way = WayOf(args, row, head);
    const bool rotates = way.rotates && pair < rotary_half;
    if (way.source == way.target && !rotates) return;
    const bool apart = rotates && !args.interleaved;
    const uint32_t first = apart ? pair : 2 * pair, second = first + (apart ? rotary_half : kWidth);
    // All loads that need no other come first: one after the other they were most of the time.
    const int64_t slot = head < args.q_heads ? 0 : LoadIndex(args.slots, row, args.slot_type);
    const int64_t position = rotates ? LoadIndex(args.positions, row, args.position_type) : 0;
    Pack<T, kWidth> packs[2] = {*PackAt<T, kWidth>(way.source, way.from + first),
                                *PackAt<T, kWidth>(way.source, way.from + second)};
    if (head >= args.q_heads) Append(args, slot, way);
    if (way.target == 0) return;
    if (kNarrowCaches && head >= args.q_heads && args.cache.dtype == Dtype::kFp8E4m3) {
      StoreNarrow<T, kWidth>(args, way, position, pair, rotates, first, second, packs);
      return;
    }
    if (rotates) {
      RotatePairs<T, kWidth>(args, position, pair, packs, [&](int i, float x) {
        packs[i / kWidth].values[i % kWidth] = FromFloat<T>(x);
      });
    }
    *PackAt<T, kWidth>(way.target, way.to + first) = packs[0];
    *PackAt<T, kWidth>(way.target, way.to + second) = packs[1];
  });
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ROPE_APPEND_ROPE_APPEND_CUH_
