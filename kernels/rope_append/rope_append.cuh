// Rotary embedding and append in the row kernel: a thread takes a pack's number of pairs, which are
// two packs of a head.
#ifndef CONCERT_KERNELS_ROPE_APPEND_ROPE_APPEND_CUH_
#define CONCERT_KERNELS_ROPE_APPEND_ROPE_APPEND_CUH_

#include "kernels/cuda_api/element.cuh"
#include "kernels/rope_append/rope_append_args.h"
#include "kernels/rows/row_threads.cuh"

namespace concert::kernels::cuda {

// A head's way: element `from` of `source` on to element `to` of `target`; target 0: nowhere.
struct HeadWay {
  Address source, target;
  uint64_t from, to;
  bool rotates;
};

// Heads of q come first, then those of k and of v.
__device__ inline HeadWay WayOf(const RopeAppendArgs& args, uint64_t row, uint32_t head) {
  if (head < args.q_heads) {
    const uint64_t at = row * args.q_stride + head * args.head_dim;
    return {args.q, args.q, at, at, true};
  }
  const bool is_k = head < args.q_heads + args.kv_heads;
  head -= is_k ? args.q_heads : args.q_heads + args.kv_heads;
  const uint64_t from = row * (is_k ? args.k_stride : args.v_stride) + head * args.head_dim;
  const int64_t index = LoadIndex(args.slots, row, args.slot_type);
  const uint64_t slot = Clamped(index, args.cache.tokens());
  const uint64_t page = slot / args.cache.page_size;
  const uint64_t to = args.cache.TokenAt(page, slot - page * args.cache.page_size) +
                      uint64_t{head} * args.cache.head_stride;
  return {is_k ? args.k : args.v,
          index < 0 ? 0
          : is_k    ? args.cache.k
                    : args.cache.v,
          from, to, is_k};
}

// Rotates the pairs from `pair` on, which are `packs`.
template <typename T, int kWidth>
__device__ void RotatePairs(const RopeAppendArgs& args, uint64_t row, uint32_t pair,
                            Pack<T, kWidth> (&packs)[2]) {
  const uint64_t position =
      Clamped(LoadIndex(args.positions, row, args.position_type), args.positions_max);
  const float* cosines =
      reinterpret_cast<const float*>(args.cos_sin) + position * args.rotary_dim + pair;
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
    packs[i / kWidth].values[i % kWidth] = FromFloat<T>(args.interleaved ? alternate : apart);
  }
}

// What falls to block `block` of `blocks`. REQUIRES: kWidth divides strides, half of rotary_dim and
// half of what it leaves of a head, and the operands but indices and cos_sin are aligned to a pack.
template <typename T, int kWidth>
__device__ void RopeAppend(const RopeAppendArgs& args, uint32_t block, uint32_t blocks) {
  const uint32_t half = args.head_dim / 2, rotary_half = args.rotary_dim / 2;
  const uint32_t heads = args.q_heads + 2 * args.kv_heads;
  ForEachPack<kWidth>(args.rows, heads * half, block, blocks, [&](uint64_t row, uint64_t column) {
    const uint32_t head = static_cast<uint32_t>(column) / half;
    const uint32_t pair = static_cast<uint32_t>(column) - head * half;
    const HeadWay way = WayOf(args, row, head);
    const bool rotates = way.rotates && pair < rotary_half;
    const bool stays = way.source == way.target && !rotates;
    if (way.target == 0 || stays) return;
    const bool apart = rotates && !args.interleaved;
    const uint32_t first = apart ? pair : 2 * pair, second = first + (apart ? rotary_half : kWidth);
    Pack<T, kWidth> packs[2] = {*PackAt<T, kWidth>(way.source, way.from + first),
                                *PackAt<T, kWidth>(way.source, way.from + second)};
    if (rotates) RotatePairs<T, kWidth>(args, row, pair, packs);
    *PackAt<T, kWidth>(way.target, way.to + first) = packs[0];
    *PackAt<T, kWidth>(way.target, way.to + second) = packs[1];
  });
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ROPE_APPEND_ROPE_APPEND_CUH_
