// Keys and values on their way into the ring.
#ifndef CONCERT_KERNELS_STEP_CACHE_FEEDER_CUH_
#define CONCERT_KERNELS_STEP_CACHE_FEEDER_CUH_

#include "kernels/step/cache_slot.cuh"

namespace concert::kernels::cuda {

template <int kDim>
class CacheFeeder {
 public:
  __device__ CacheFeeder(SlotWriter& writer, const StepAttention& attention)
      : writer_(writer),
        op_(attention.op),
        rows_(attention.append.rows),
        own_slot_(SlotOfRow(attention.append)) {}

  // The block's items, slot by slot; one for an item without tokens, too, which tells so.
  __device__ void Feed() {
    const uint32_t chunks = ChunksOf(op_), items = op_.rows * chunks * op_.kv_heads;
    for (uint32_t item = blockIdx.x; item < items; item += gridDim.x) {
      AttentionChunk chunk = ChunkOf(op_, chunks, item);
      FindTokens(chunks, chunk);
      Lookups next = LookUp(chunk, chunk.begin);
      uint32_t first = chunk.begin;
      do {
        const Lookups lookups = next;
        // Ahead, so that the wait for the page table is not in the way.
        next = LookUp(chunk, first + Slot::kTokens);
        Fill(chunk, first, lookups);
        first += Slot::kTokens;
      } while (first < chunk.end);
    }
  }

 private:
  using Slot = CacheSlot<kDim>;
  static constexpr int kLookups = Slot::kTokens / 32;
  static constexpr uint32_t kUnits = kDim / 8;      // of a token's keys
  static constexpr uint32_t kAtOnce = 32 / kUnits;  // tokens whose keys a warp asks for at once

  // Of a slot's tokens, those of this lane: 32 apart.
  struct Lookups {
    uint64_t at[kLookups];    // the element of k and of v at which it begins
    uint32_t slot[kLookups];  // of the cache
  };

  static __device__ uint32_t Lane() { return threadIdx.x % 32; }

  // The slot that row `lane` appends to; ~0: none.
  __device__ uint32_t SlotOfRow(const StepAppend& append) const {
    if (Lane() >= append.rows) return ~0u;
    const int64_t slot = LoadIndex(append.slots, Lane(), append.slot_type);
    return slot < 0 ? ~0u : static_cast<uint32_t>(Clamped(slot, op_.cache.tokens()));
  }

  // The length may change meanwhile, at a client's will: it is read once.
  __device__ void FindTokens(uint32_t chunks, AttentionChunk& chunk) const {
    const uint32_t length = __shfl_sync(kAll, op_.LengthOf(chunk.row), 0);
    const uint32_t visible = min(length, op_.span_max());
    const uint32_t tokens = max(kMinStepChunk, ((visible + chunks - 1) / chunks + 31) / 32 * 32);
    chunk.begin = min(length, length - visible + chunk.index * tokens);
    chunk.end = min(length, chunk.begin + tokens);
  }

  // Behind the chunk's end: of its last token.
  __device__ Lookups LookUp(const AttentionChunk& chunk, uint32_t first) const {
    Lookups lookups;
#pragma unroll
    for (int i = 0; i < kLookups; ++i) {
      const uint32_t token = min(first + 32 * i + Lane(), max(chunk.end, 1u) - 1);
      const KvPlace place = op_.PlaceOf(chunk.row, token);
      lookups.at[i] = op_.cache.TokenAt(place.page, place.token) +
                      uint64_t{chunk.kv_head} * op_.cache.head_stride;
      lookups.slot[i] = static_cast<uint32_t>(place.page) * op_.cache.page_size + place.token;
    }
    return lookups;
  }

  __device__ void Fill(const AttentionChunk& chunk, uint32_t first, const Lookups& lookups) {
    char* const slot = writer_.Take();
    Describe(chunk, lookups, Slot::HeaderOf(slot));
#pragma unroll
    for (int i = 0; i < kLookups; ++i) {
#pragma unroll 4
      for (uint32_t token = 0; token < 32; token += kAtOnce) {
        const uint32_t place = token + Lane() / kUnits, unit = Lane() % kUnits;
        const uint64_t at = __shfl_sync(kAll, lookups.at[i], static_cast<int>(place)) + 8 * unit;
        const uint32_t bytes = first + 32 * i + place < chunk.end ? 16 : 0;
        const uint32_t to = SharedAddress(slot) + Slot::PlaceOf(32 * i + place, unit);
        CopyUnit(to, op_.cache.k + 2 * at, bytes);
        CopyUnit(to + Slot::kValues, op_.cache.v + 2 * at, bytes);
      }
    }
    static_assert(kSlotArrivals == 32 + 1);
    ArriveWhenCopied(writer_.full());
    __syncwarp();  // the header is there
    if (Lane() == 0) Arrive(writer_.full());
    writer_.Advance();
  }

  __device__ void Describe(const AttentionChunk& chunk, const Lookups& lookups,
                           CacheSlotHeader& header) const {
    bool any = false;
#pragma unroll
    for (int i = 0; i < kLookups; ++i) {
      uint32_t row = CacheSlotHeader::kNobody;
      for (uint32_t other = 0; other < rows_; ++other) {
        if (__shfl_sync(kAll, own_slot_, static_cast<int>(other)) == lookups.slot[i]) row = other;
      }
      header.appended[32 * i + Lane()] = static_cast<uint8_t>(row);
      any = any || row != CacheSlotHeader::kNobody;
    }
    any = __any_sync(kAll, any);
    if (Lane() == 0) {
      header.begin = chunk.begin, header.end = chunk.end;
      header.any_appended = any;
    }
  }

  SlotWriter& writer_;
  const AttentionDecodeArgs& op_;
  const uint32_t rows_;
  const uint32_t own_slot_;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_CACHE_FEEDER_CUH_
