// Keys and values in a slot of the ring: which of attention's tokens a block takes, and how they
// lie.
#ifndef CONCERT_KERNELS_STEP_CACHE_SLOT_CUH_
#define CONCERT_KERNELS_STEP_CACHE_SLOT_CUH_

#include "kernels/attention_decode/slot_attention.cuh"
#include "kernels/step/division.cuh"
#include "kernels/step/slot_ring.cuh"

namespace concert::kernels::cuda {

// Which row, head and chunk item `item` is; its tokens are not known yet.
__device__ inline AttentionChunk ChunkOf(const AttentionDecodeArgs& op, uint32_t chunks,
                                         uint32_t item) {
  AttentionChunk chunk = {};
  const Division of_heads = DivisionOf(item, op.kv_heads);
  chunk.kv_head = of_heads.rest;
  chunk.row = of_heads.quotient;
  if (chunks == 1) return chunk;
  const Division of_chunks = DivisionOf(of_heads.quotient, chunks);
  chunk.row = of_chunks.quotient;
  chunk.index = of_chunks.rest;
  return chunk;
}

// A warp takes half a slot: a round has so many slots at most, a quarter of them for each pair of
// warps.
inline constexpr uint32_t kSlotsAtOnce = kStepWarps / 2;
static_assert(kSlotsAtOnce == 4 && kSlotsAtOnce < kSlots);

// Of a block's items, from `item` on, 1, 2 or 4 are attended to side by side, each by as many warps
// and slots of a round: its log2. What an item costs beside its tokens, waits for q and for the
// other warps, is then there once for all of these.
__device__ inline uint32_t SideBySideShift(uint32_t item, uint32_t items) {
  return item + 2 * gridDim.x < items ? 2 : item + gridDim.x < items ? 1 : 0;
}

// What a slot says of itself.
struct CacheSlotHeader {
  static constexpr uint8_t kNobody = 255, kNoSlot = 255;
  static constexpr uint32_t kLastRound = 256;

  uint32_t tokens;  // that it has
  bool any_appended;
  // Of a round's first slot: how many it has, and kLastRound if the items have no other; and which
  // of them, from this one on, each quarter is.
  uint32_t round;
  alignas(4) uint8_t quarters[kSlotsAtOnce];
  alignas(
      4) uint8_t appended[64];  // the row that appends a token meanwhile: what is here is not it
};

// Keys and values, then the header.
template <int kDim>
struct CacheSlot : SlotLayout<kDim, SlotTokens(kDim)> {
  using SlotLayout<kDim, SlotTokens(kDim)>::kTokens;
  static constexpr uint32_t kHeader = SlotLayout<kDim, SlotTokens(kDim)>::kBytes;
  static_assert(kHeader + sizeof(CacheSlotHeader) <= kSlotBytes && kTokens <= 64);

  static __device__ CacheSlotHeader& HeaderOf(char* slot) {
    return *reinterpret_cast<CacheSlotHeader*>(slot + kHeader);
  }
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_CACHE_SLOT_CUH_
