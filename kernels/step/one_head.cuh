// Attention of one head of q over a head of the cache: too few for tensor cores, whose tiles have
// room for eight. A warp takes tokens by fours, or twos, whose keys and values its lanes
// read side by side, 16 bytes each.
#ifndef CONCERT_KERNELS_STEP_ONE_HEAD_CUH_
#define CONCERT_KERNELS_STEP_ONE_HEAD_CUH_

#include "kernels/attention_decode/attention_block.cuh"

namespace concert::kernels::cuda {

__device__ __forceinline__ void Unpack(const uint4& pack, float (&values)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = __uint_as_float(Word(pack, i) << 16);
    values[2 * i + 1] = __uint_as_float(Word(pack, i) & 0xffff0000u);
  }
}

template <int kDim>
class OneHead {
 public:
  // This warp's part of a chunk, into `results`.
  template <int kWarps>
  static __device__ void AttendChunk(const AttentionDecodeArgs& op, const AttentionChunk& chunk,
                                     const WarpTeam& team, WarpResults<kDim, kWarps>& results) {
    OneHead attention(op, chunk);
#pragma unroll 1
    for (uint32_t first = chunk.begin + team.warp() * kTokens; first < chunk.end;
         first += team.count * kTokens) {
      attention.Add(op, chunk, first);
    }
    attention.Keep(results);
  }

 private:
  static constexpr int kLanes = kDim / 8;      // that share a token
  static constexpr int kAtOnce = 32 / kLanes;  // tokens that a warp reads at once
  static constexpr int kLoads = 16;            // that are on their way
  static constexpr uint32_t kTokens = kAtOnce * kLoads;

  __device__ OneHead(const AttentionDecodeArgs& op, const AttentionChunk& chunk) {
    const uint64_t at = chunk.row * op.q_stride + chunk.kv_head * kDim + 8 * Part();
    const float scale = op.scale * (op.soft_cap != 0 ? 1 : kLog2E);
    Unpack(LoadUnit(op.q, at), q_);
#pragma unroll
    for (float& value : q_) value *= scale;
  }

  static __device__ uint32_t Part() { return threadIdx.x % kLanes; }
  static __device__ uint32_t Place() { return threadIdx.x % 32 / kLanes; }

  // kTokens tokens from `first` on; those from the chunk's end on weigh nothing.
  __device__ void Add(const AttentionDecodeArgs& op, const AttentionChunk& chunk, uint32_t first) {
    constexpr int kLookups = kTokens / 32;
    uint64_t lookups[kLookups];  // of the lane's tokens: where they begin
#pragma unroll
    for (int i = 0; i < kLookups; ++i) {
      const uint32_t token = min(first + 32 * i + threadIdx.x % 32, chunk.end - 1);
      lookups[i] = op.TokenAt(chunk.row, token) + uint64_t{chunk.kv_head} * op.cache.head_stride;
    }
    uint64_t at[kLoads];
    uint4 packs[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      constexpr int kLoadsOfLookup = 32 / kAtOnce;
      at[i] = 8 * Part() + __shfl_sync(kAll, lookups[i / kLoadsOfLookup],
                                       i % kLoadsOfLookup * kAtOnce + Place());
      packs[i] = LoadUnit(op.cache.k, at[i]);
    }
    float scores[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const bool there = first + kAtOnce * i + Place() < chunk.end;
      float key[8];
      Unpack(packs[i], key);
      packs[i] = LoadUnit(op.cache.v, at[i]);  // on its way while keys are multiplied
      float product = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) product += q_[j] * key[j];
#pragma unroll
      for (int lane = 1; lane < kLanes; lane *= 2) product += __shfl_xor_sync(kAll, product, lane);
      if (op.soft_cap != 0) product = kLog2E * op.soft_cap * tanhf(product / op.soft_cap);
      scores[i] = there ? product : -INFINITY;
    }
    Weigh(scores);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      float value[8];
      Unpack(packs[i], value);
#pragma unroll
      for (int j = 0; j < 8; ++j) sums_[j] += scores[i] * value[j];
    }
  }

  // Makes weights of a lane's scores, and what was added before fit them.
  __device__ void Weigh(float (&scores)[kLoads]) {
    float largest = state_.largest;
#pragma unroll
    for (float score : scores) largest = fmaxf(largest, score);
    // All scores may be -inf, which is no number to subtract.
    const float base = largest == -INFINITY ? 0 : largest;
    const float scale = exp2f(state_.largest - base);
    state_.largest = largest;
    state_.sum *= scale;
#pragma unroll
    for (float& sum : sums_) sum *= scale;
#pragma unroll
    for (float& score : scores) {
      score = exp2f(score - base);
      state_.sum += score;
    }
  }

  // Lanes of one part have other tokens each.
  template <int kWarps>
  __device__ void Keep(WarpResults<kDim, kWarps>& results) {
    const uint32_t warp = threadIdx.x / 32;
    float largest = state_.largest;
#pragma unroll
    for (int lane = kLanes; lane < 32; lane *= 2)
      largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, lane));
    const float weight = WeightOf(state_, largest);
    state_.sum *= weight;
#pragma unroll
    for (int lane = kLanes; lane < 32; lane *= 2)
      state_.sum += __shfl_xor_sync(kAll, state_.sum, lane);
    if (threadIdx.x % 32 == 0) results.states[warp][0] = {largest, state_.sum};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float sum = sums_[j] * weight;
#pragma unroll
      for (int lane = kLanes; lane < 32; lane *= 2) sum += __shfl_xor_sync(kAll, sum, lane);
      if (Place() == 0) results.sums[warp][0][8 * Part() + j] = sum;
    }
  }

  float q_[8];
  float sums_[8] = {};
  SoftmaxState state_ = {-INFINITY, 0};
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_ONE_HEAD_CUH_
