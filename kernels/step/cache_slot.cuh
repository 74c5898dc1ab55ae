// Keys and values in a slot of the ring: which of attention's tokens a block takes, and how they
// lie.
#ifndef CONCERT_KERNELS_STEP_CACHE_SLOT_CUH_
#define CONCERT_KERNELS_STEP_CACHE_SLOT_CUH_

#include "kernels/attention_decode/attention_block.cuh"
#include "kernels/step/slot_ring.cuh"

namespace concert::kernels::cuda {

// A chunk is worth what it costs to add it up.
inline constexpr uint32_t kMinStepChunk = 128;

// Into how many chunks rows are cut, so that every block has one.
__device__ inline uint32_t ChunksOf(const AttentionDecodeArgs& op) {
  const uint32_t heads = op.rows * op.kv_heads;
  const uint32_t longest = (op.span_max() + kMinStepChunk - 1) / kMinStepChunk;
  return max(1u, min(gridDim.x / heads, longest));
}

// Which row, head and chunk item `item` is; its tokens are not known yet.
__device__ inline AttentionChunk ChunkOf(const AttentionDecodeArgs& op, uint32_t chunks,
                                         uint32_t item) {
  AttentionChunk chunk = {};
  chunk.kv_head = item % op.kv_heads;
  const uint32_t of_row = item / op.kv_heads;
  chunk.index = of_row % chunks;
  chunk.row = of_row / chunks;
  return chunk;
}

// What a slot says of itself.
struct CacheSlotHeader {
  static constexpr uint8_t kNobody = 255;

  uint32_t begin, end;  // the chunk's tokens, of which the slot has the next
  bool any_appended;
  uint8_t appended[64];  // the row that appends a token meanwhile: what is here is not it
};

// First the keys, token by token, then the values, then the header. Behind the chunk's end are
// zeros. Units of 16 bytes are mixed up so that those which a warp reads at once, of keys or of
// values (WarpAttention), are in different banks.
template <int kDim>
struct CacheSlot {
  static constexpr uint32_t kTokens = 4096 / kDim;
  static constexpr uint32_t kTokenBytes = 2 * kDim;
  static constexpr uint32_t kValues = kTokens * kTokenBytes;
  static constexpr uint32_t kHeader = 2 * kValues;
  static_assert(kHeader + sizeof(CacheSlotHeader) <= kSlotBytes && kTokens <= 64);

  // Of a unit of keys.
  static __device__ uint32_t PlaceOf(uint32_t token, uint32_t unit) {
    const uint32_t mix = (token & 2) | ((token ^ token >> 2) & 1) << 2;
    return token * kTokenBytes + 16 * (unit ^ mix);
  }
  static __device__ CacheSlotHeader& HeaderOf(char* slot) {
    return *reinterpret_cast<CacheSlotHeader*>(slot + kHeader);
  }
};

// Tokens of a slot, from its token `first` on, which is a multiple of 8.
template <int kDim>
class TokensInSlot {
 public:
  __device__ TokensInSlot(const char* slot, uint32_t first)
      : keys_(SharedAddress(slot) + first * CacheSlot<kDim>::kTokenBytes) {}

  static __device__ uint32_t Find(uint32_t token) { return token; }
  __device__ uint4 Key(uint32_t token, uint32_t element) const {
    return LoadShared(keys_ + CacheSlot<kDim>::PlaceOf(token, element / 8));
  }
  __device__ uint4 Value(uint32_t token, uint32_t element) const {
    return LoadShared(keys_ + CacheSlot<kDim>::kValues +
                      CacheSlot<kDim>::PlaceOf(token, element / 8));
  }

 private:
  const uint32_t keys_;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_CACHE_SLOT_CUH_
