// Attention of a warp to tokens of a cache in bf16 that lie in shared memory, a slot of them at a
// time.
#ifndef CONCERT_KERNELS_ATTENTION_DECODE_SLOT_ATTENTION_CUH_
#define CONCERT_KERNELS_ATTENTION_DECODE_SLOT_ATTENTION_CUH_

#include "kernels/attention_decode/attention_block.cuh"
#include "kernels/cuda_api/matrices.cuh"
#include "kernels/group/async.cuh"

namespace concert::kernels::cuda {

// Called, not inlined: most models have none, and code that nobody runs is in the way.
__device__ __noinline__ float SoftCapped(float score, float soft_cap) {
  return soft_cap * tanhf(score / soft_cap);
}

// How kTokens tokens of a head lie in a slot: first the keys, then the values. Rows are 64 elements
// of a token; where heads have 128, all tokens' first halves come first. Units of 16 bytes are
// mixed up in a row as CU_TENSOR_MAP_SWIZZLE_128B does it, by where in shared memory the row lies,
// so that those of eight tokens are in different banks.
template <int kDim, uint32_t kSlotTokens>
struct SlotLayout {
  static constexpr uint32_t kTokens = kSlotTokens;
  static constexpr uint32_t kRowBytes = 128;
  static constexpr uint32_t kHalves = kDim / 64;
  static constexpr uint32_t kHalfBytes = kTokens * kRowBytes;
  static constexpr uint32_t kValues = kHalves * kHalfBytes;
  static constexpr uint32_t kBytes = 2 * kValues;

  // Where a token's unit of keys, or of values, lies, whose first row is at `rows`.
  static __device__ uint32_t UnitAt(uint32_t rows, uint32_t token, uint32_t unit) {
    const uint32_t row = rows + unit / 8 * kHalfBytes + token * kRowBytes;
    return row + 16 * ((unit ^ row / kRowBytes) % 8);
  }
};

// Keys, and columns of values, are the left operand of the tensor cores, heads of q, and the
// weights of tokens, the right one. Lane l has heads 2 * (l % 4) and the next of those that share
// the cache's, of tokens l / 4 and l / 4 + 8 of sixteen.
// `Slot`: a SlotLayout.
template <int kDim, class Slot>
class SlotAttention {
 public:
  // At a time; what is known of them are registers.
  static constexpr uint32_t kTokens = Slot::kTokens < 2048 / kDim ? Slot::kTokens : 2048 / kDim;

  // Asks for q, word by word: of head l / 4, which stands at `head` if there is one.
  template <typename LoadWord>
  __device__ void LoadQ(Address head, bool there, LoadWord load_word) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        q_[i][half] = there ? load_word(head + 2 * (16 * i + 8 * half + 2 * Quarter())) : 0;
      }
    }
  }
  // The largest lower and the largest upper half of q's words.
  __device__ uint32_t MostOfQ() const {
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) most = __vmaxu2(most, __vmaxu2(q_[i][0], q_[i][1]));
    return most;
  }

  // kTokens tokens of a slot from its token `first` on; those from `end` on weigh nothing.
  // REQUIRES: q is there.
  __device__ void Add(const AttentionDecodeArgs& op, const char* slot, uint32_t first,
                      uint32_t end) {
    const uint32_t keys = SharedAddress(slot) + first * Slot::kRowBytes;
    float scores[kTiles][4] = {};
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const Rows rows(keys, 16 * tile + Lane() / 8 % 2 * 8 + Lane() % 8, Lane() / 16);
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        uint32_t k[4];
        LoadMatrices(rows.At(i), k);
        MultiplyAdd(scores[tile], k, q_[i][0], q_[i][1]);
      }
    }
    Weigh(op, first, end, scores);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const float(&weights)[4] = scores[tile];
      const uint32_t low = Transposed(PackBf16(weights[0], weights[1]));
      const uint32_t high = Transposed(PackBf16(weights[2], weights[3]));
      const Rows rows(keys + Slot::kValues, 16 * tile + Lane() / 16 * 8 + Lane() % 8,
                      Lane() / 8 % 2);
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        uint32_t v[4];
        LoadTransposed(rows.At(i), v);
        MultiplyAdd(sums_[i], v, low, high);
      }
    }
  }

  // REQUIRES: all lanes call it. `group`: heads that there are.
  template <typename Results>
  __device__ void Keep(uint32_t group, Results& results) {
    const uint32_t warp = threadIdx.x / 32, eighth = Lane() / 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int lane = 4; lane < 32; lane *= 2) sum_[i] += __shfl_xor_sync(kAll, sum_[i], lane);
      const uint32_t head = 2 * Quarter() + i;
      if (head >= group) continue;
      if (eighth == 0) results.State(warp, head) = {largest_[i], sum_[i]};
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        results.Sum(warp, head, 16 * step + eighth) = sums_[step][i];
        results.Sum(warp, head, 16 * step + 8 + eighth) = sums_[step][2 + i];
      }
    }
  }

 private:
  static constexpr int kTiles = kTokens / 16;
  static constexpr int kSteps = kDim / 16;

  // Where a lane's token has the units of 16 elements, one half of them (SlotLayout::UnitAt).
  class Rows {
   public:
    __device__ Rows(uint32_t rows, uint32_t token, uint32_t half)
        : row_(rows + token * Slot::kRowBytes), mix_(16 * ((half ^ row_ / Slot::kRowBytes) % 8)) {}
    __device__ uint32_t At(int step) const {
      return row_ + step / 4 * Slot::kHalfBytes + (32u * (step % 4) ^ mix_);
    }

   private:
    const uint32_t row_, mix_;
  };

  static __device__ uint32_t Lane() { return threadIdx.x % 32; }
  static __device__ uint32_t Quarter() { return threadIdx.x % 4; }

  // Makes weights of scores, and what was added before fit them.
  __device__ void Weigh(const AttentionDecodeArgs& op, uint32_t token, uint32_t end,
                        float (&scores)[kTiles][4]) {
    const float scale = op.soft_cap == 0 ? op.scale * kLog2E : op.scale;
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) {
      float& score = scores[i / 4][i % 4];
      score *= scale;
      if (op.soft_cap != 0) score = kLog2E * SoftCapped(score, op.soft_cap);
      if (token + 16 * (i / 4) + 8 * (i % 4 / 2) + Lane() / 4 >= end) score = -INFINITY;
    }
#pragma unroll
    for (int head = 0; head < 2; ++head) {
      float largest = largest_[head];
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i)
        largest = fmaxf(largest, scores[i / 2][i % 2 * 2 + head]);
#pragma unroll
      for (int lane = 4; lane < 32; lane *= 2)
        largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, lane));
      // All scores may be -inf, which is no number to subtract.
      const float base = largest == -INFINITY ? 0 : largest;
      const float shrink = Exp2(largest_[head] - base);
      largest_[head] = largest;
      sum_[head] *= shrink;
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        float& score = scores[i / 2][i % 2 * 2 + head];
        score = Exp2(score - base);
        sum_[head] += score;
      }
#pragma unroll
      for (int i = 0; i < kSteps; ++i) sums_[i][head] *= shrink, sums_[i][2 + head] *= shrink;
    }
  }

  uint32_t q_[kSteps][2];
  float sums_[kSteps][4] = {};  // columns 16 * step + l / 4, and + 8, of both heads
  float largest_[2] = {-INFINITY, -INFINITY};
  float sum_[2] = {};  // of the lane's own tokens
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ATTENTION_DECODE_SLOT_ATTENTION_CUH_
