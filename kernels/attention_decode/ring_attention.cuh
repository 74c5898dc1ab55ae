// Attention of a warp to tokens of a cache in bf16 that come through a ring of its own in shared
// memory: the next slots' are on their way while one's are multiplied, and its warps wait for
// nobody. For heads of 64 and 128.
#ifndef CONCERT_KERNELS_ATTENTION_DECODE_RING_ATTENTION_CUH_
#define CONCERT_KERNELS_ATTENTION_DECODE_RING_ATTENTION_CUH_

#include "kernels/attention_decode/page_window.cuh"
#include "kernels/attention_decode/slot_attention.cuh"

namespace concert::kernels::cuda {

template <int kDim>
class RingAttention {
 public:
  // `ring`: this warp's, of kAttentionSlots slots.
  __device__ RingAttention(const AttentionDecodeArgs& op, const AttentionChunk& chunk,
                           const AttentionTeam& team, char* ring)
      : op_(op),
        chunk_(chunk),
        ring_(ring),
        first_(chunk.begin + team.warp() * Slot::kTokens),
        step_(team.warps() * Slot::kTokens) {}

  // This warp's part of the chunk, whose row's pages `pages` finds. REQUIRES: all lanes call it,
  // once.
  __device__ void Attend(PageWindow& pages) {
    uint32_t first = first_;
    if (first >= chunk_.end) return;
    uint64_t at[kAttentionSlots];
#pragma unroll
    for (uint32_t slot = 0; slot < kAttentionSlots; ++slot)
      at[slot] = LookUp(pages, first + slot * step_);
#pragma unroll
    for (uint32_t slot = 0; slot < kAttentionSlots; ++slot)
      Load(slot, first + slot * step_, at[slot]);
    const uint32_t group = op_.q_heads / op_.kv_heads, head = threadIdx.x % 32 / 4;
    attention_.LoadQ(
        op_.q + 2 * (chunk_.row * op_.q_stride + (chunk_.kv_head * group + head) * kDim),
        head < group, [](Address word) { return *reinterpret_cast<const uint32_t*>(word); });
    for (uint32_t slot = 0; first < chunk_.end; first += step_) {
      const uint32_t next = first + kAttentionSlots * step_;
      const uint64_t next_at = LookUp(pages, next);
      WaitForUnits<kAttentionSlots - 1>();
      __syncwarp();
      attention_.Add(op_, ring_ + slot * Slot::kBytes, 0, chunk_.end - first);
      __syncwarp();
      Load(slot, next, next_at);
      slot = slot + 1 < kAttentionSlots ? slot + 1 : 0;
    }
  }

  // REQUIRES: all lanes call it.
  template <typename Results>
  __device__ void Keep(Results& results) {
    attention_.Keep(op_.q_heads / op_.kv_heads, results);
  }

 private:
  using Slot = SlotLayout<kDim, kAttentionSlotTokens>;
  static_assert(kAttentionSlots * Slot::kBytes == AttentionRingBytes(kDim, 2));

  // Where in k and v this lane's token of a slot's from `first` on begins, bytes; the chunk's last,
  // if there are fewer, whose values are numbers as far as any are. 0 of a slot without tokens.
  __device__ uint64_t LookUp(PageWindow& pages, uint32_t first) const {
    if (first >= chunk_.end) return 0;
    const uint32_t last = min(first + Slot::kTokens, chunk_.end) - 1;
    if (!pages.Has(last)) pages.MoveTo(first);
    const uint32_t token = min(first + threadIdx.x % Slot::kTokens, last);
    return 2 * (pages.TokenAt(token) + uint64_t{chunk_.kv_head} * op_.cache.head_stride);
  }
  // Asks for tokens, if there are any: of which lane l % kTokens knows where one begins.
  __device__ void Load(uint32_t slot, uint32_t first, uint64_t at) const {
    constexpr uint32_t kUnits = kDim / 8;  // of 16 bytes, of a token
    const uint32_t to = SharedAddress(ring_) + slot * Slot::kBytes, lane = threadIdx.x % 32;
    if (first < chunk_.end) {
#pragma unroll
      for (uint32_t i = 0; i < Slot::kTokens * kUnits / 32; ++i) {
        const uint32_t token = 32 / kUnits * i + lane / kUnits, unit = lane % kUnits;
        const uint64_t from = __shfl_sync(kAll, at, token) + 16 * unit;
        const uint32_t key = Slot::UnitAt(to, token, unit);
        CopyUnit(key, op_.cache.k + from, hint_);
        CopyUnit(key + Slot::kValues, op_.cache.v + from, hint_);
      }
    }
    CommitUnits();  // also of nothing: slots are counted
  }

  const AttentionDecodeArgs& op_;
  const AttentionChunk& chunk_;
  char* const ring_;
  const CacheHint hint_ = CacheHint::ReadOnce();
  const uint32_t first_, step_;  // of its tokens; those that the team takes at a time
  SlotAttention<kDim, Slot> attention_;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ATTENTION_DECODE_RING_ATTENTION_CUH_
