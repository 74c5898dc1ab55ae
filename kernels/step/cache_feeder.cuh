// Keys and values on their way into the ring.
#ifndef CONCERT_KERNELS_STEP_CACHE_FEEDER_CUH_
#define CONCERT_KERNELS_STEP_CACHE_FEEDER_CUH_

#include "kernels/step/cache_slot.cuh"

namespace concert::kernels::cuda {

template <int kDim>
class CacheFeeder {
 public:
  // `items`: of the launch's attentions, those that came before; counts on.
  __device__ CacheFeeder(StepMemory& memory, SlotWriter& writer, const StepAttention& attention,
                         uint32_t& items)
      : memory_(memory),
        writer_(writer),
        items_(items),
        op_(attention.op),
        maps_(attention.maps),
        box_tokens_(attention.box_tokens),
        chunks_(ChunksOf(attention)),
        rows_(attention.append.rows),
        own_slot_(SlotOfRow(attention.append)) {}

  // The block's items, slot by slot; one for an item without tokens, too, which tells so.
  __device__ void Feed() {
    if (box_tokens_ != 0 && Elect().is_leader) {
      AcquireMap(maps_);
      AcquireMap(maps_ + 1);
    }
    __syncwarp();
    const uint32_t items = op_.rows * chunks_ * op_.kv_heads;
    for (uint32_t item = blockIdx.x; item < items; item += gridDim.x) {
      AttentionChunk chunk = ChunkOf(op_, chunks_, item);
      FindTokens(LengthOf(chunk), chunk);
      if (box_tokens_ != 0) {
        FeedBoxes(chunk);
      } else {
        FeedUnits(chunk);
      }
    }
  }

 private:
  using Slot = CacheSlot<kDim>;
  static constexpr int kLookups = Slot::kTokens / 32;
  static constexpr uint32_t kUnits = kDim / 8;      // of a token's keys
  static constexpr uint32_t kAtOnce = 32 / kUnits;  // tokens whose keys a warp asks for at once

  // Of a slot's tokens, those of this lane: 32 apart.
  struct Lookups {
    uint32_t page[kLookups], token[kLookups];  // token: of the page
  };

  static __device__ uint32_t Lane() { return threadIdx.x % 32; }

  // The slot that row `lane` appends to; ~0: none.
  __device__ uint32_t SlotOfRow(const StepAppend& append) const {
    if (Lane() >= append.rows) return ~0u;
    const int64_t slot = LoadIndex(append.slots, Lane(), append.slot_type);
    return slot < 0 ? ~0u : static_cast<uint32_t>(Clamped(slot, op_.cache.tokens()));
  }

  // Read once, by one of the warps that load ahead: it may change meanwhile, at a client's will,
  // and they must agree on how many slots there are.
  __device__ uint32_t LengthOf(const AttentionChunk& chunk) {
    constexpr int kBarrier = 2;
    const uint32_t turn = items_++ % 2;
    if (threadIdx.x == kStepComputeThreads) memory_.lengths[turn] = op_.LengthOf(chunk.row);
    NamedSync(kBarrier, 32 * kStepFeeders);
    return *const_cast<const volatile uint32_t*>(&memory_.lengths[turn]);
  }

  __device__ void FindTokens(uint32_t length, AttentionChunk& chunk) const {
    const uint32_t visible = min(length, op_.span_max());
    const uint32_t tokens =
        max(kMinStepChunk, ((visible + chunks_ - 1) / chunks_ + kStepChunkStep - 1) /
                               kStepChunkStep * kStepChunkStep);
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
      lookups.page[i] = static_cast<uint32_t>(place.page), lookups.token[i] = place.token;
    }
    return lookups;
  }

  // In boxes of tokens that are neighbours in a page. A lane looks one up; so many are looked up at
  // once, and the next ones before they are needed.
  __device__ void FeedBoxes(const AttentionChunk& chunk) {
    const uint32_t slot_boxes = Slot::kTokens / box_tokens_;
    uint32_t first = chunk.begin, box = 32;
    KvPlace place;
    do {
      if (box == 32) {
        place = op_.PlaceOf(chunk.row, min(first + box_tokens_ * Lane(), max(chunk.end, 1u) - 1));
        box = 0;
      }
      if (writer_.IsNextOwn()) {
        CopyBoxes(chunk, first, place, box, writer_.Take());
        writer_.Advance();
      } else {
        writer_.Pass();
      }
      first += Slot::kTokens;
      box += slot_boxes;
    } while (first < chunk.end);
  }

  // A slot's boxes, those of lanes from `box` on. What of them is behind the chunk's end is
  // whatever the cache holds there.
  __device__ void CopyBoxes(const AttentionChunk& chunk, uint32_t first, const KvPlace& place,
                            uint32_t box, char* slot) const {
    const uint32_t keys = SharedAddress(slot), full = writer_.full();
    const uint32_t tokens = min(Slot::kTokens, chunk.end - min(first, chunk.end));
    const uint32_t boxes = (tokens + box_tokens_ - 1) / box_tokens_;
    CacheSlotHeader& header = Slot::HeaderOf(slot);
    BeginHeader(chunk, header);
    const bool leads = Elect().is_leader;
    if (leads) ArriveExpecting(full, boxes * box_tokens_ * 2 * (2 * kDim));
    uint32_t token = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < boxes; ++i, token += box_tokens_) {
      const auto page = static_cast<uint32_t>(
          __shfl_sync(kAll, static_cast<uint32_t>(place.page), static_cast<int>(box + i)));
      const uint32_t of_page = __shfl_sync(kAll, place.token, static_cast<int>(box + i));
      if (leads) LoadToken(keys + token * Slot::kRowBytes, full, chunk.kv_head, of_page, page);
      NoteAppended(page * op_.cache.page_size + of_page, token, tokens, header);
    }
    __syncwarp();  // the header is there
    if (leads) ArriveTimes(full, kSlotArrivals - 1);
  }
  __device__ void LoadToken(uint32_t to, uint32_t full, uint32_t head, uint32_t token,
                            uint32_t page) const {
#pragma unroll
    for (uint32_t half = 0; half < Slot::kHalves; ++half) {
      const uint32_t place[4] = {64 * half, head, token, page};
      LoadBox(to + half * Slot::kHalfBytes, maps_, full, place, writer_.hint());
      LoadBox(to + half * Slot::kHalfBytes + Slot::kValues, maps_ + 1, full, place, writer_.hint());
    }
  }

  // That nobody appends anything; then, whoever does so to a box of the cache, which is the slot's
  // from `token` on. Behind the chunk's end nobody does: who reads the slot need not wait for it.
  __device__ void BeginHeader(const AttentionChunk& chunk, CacheSlotHeader& header) const {
    static_assert(CacheSlotHeader::kNobody == 0xff && sizeof(header.appended) == 16 * 4);
    if (Lane() < 16) reinterpret_cast<uint32_t*>(header.appended)[Lane()] = ~0u;
    if (Lane() == 16) {
      header.begin = chunk.begin, header.end = chunk.end;
      header.any_appended = false;
    }
    __syncwarp();
  }
  __device__ void NoteAppended(uint32_t box_slot, uint32_t token, uint32_t tokens,
                               CacheSlotHeader& header) const {
    const uint32_t within = own_slot_ - box_slot;
    if (within >= box_tokens_ || token + within >= tokens) return;
    header.appended[token + within] = static_cast<uint8_t>(Lane());
    header.any_appended = true;
  }

  __device__ void FeedUnits(const AttentionChunk& chunk) {
    uint32_t first = chunk.begin;
    do {
      if (writer_.IsNextOwn()) {
        // Before the wait for the slot, so that the wait for the page table is not in the way.
        const Lookups lookups = LookUp(chunk, first);
        CopyUnits(chunk, first, lookups, writer_.Take());
        writer_.Advance();
      } else {
        writer_.Pass();
      }
      first += Slot::kTokens;
    } while (first < chunk.end);
  }

  __device__ void CopyUnits(const AttentionChunk& chunk, uint32_t first, const Lookups& lookups,
                            char* slot) const {
    const uint32_t to = SharedAddress(slot), tokens = chunk.end - min(first, chunk.end);
#pragma unroll 1
    for (int i = 0; i < kLookups; ++i) {
      const int lookup = i == 0 ? 0 : kLookups - 1;
      const uint64_t at = op_.cache.TokenAt(lookups.page[lookup], lookups.token[lookup]) +
                          uint64_t{chunk.kv_head} * op_.cache.head_stride;
#pragma unroll 1
      for (uint32_t token = 0; token < 32; token += 4 * kAtOnce)
        CopyTokens(at, token, 32 * i, tokens, to);
    }
    Describe(chunk, first, lookups, Slot::HeaderOf(slot));
    static_assert(kSlotArrivals == 32 + 1);
    ArriveWhenCopied(writer_.full());
    __syncwarp();  // the header is there
    if (Lane() == 0) Arrive(writer_.full());
  }

  // Four times as many tokens as a warp copies at once, so that one need not wait for another:
  // from `token` on of the 32 whose places lanes have in `at`, which are the slot's from `base` on.
  // The slot has `tokens`; the others are zeros.
  __device__ void CopyTokens(uint64_t at, uint32_t token, uint32_t base, uint32_t tokens,
                             uint32_t slot) const {
    const uint32_t unit = Lane() % kUnits;
    token += Lane() / kUnits;
    uint64_t from[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      from[i] = 2 * (__shfl_sync(kAll, at, static_cast<int>(token + i * kAtOnce)) + 8 * unit);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t place = base + token + i * kAtOnce;
      const uint32_t bytes = place < tokens ? 16 : 0, to = Slot::UnitAt(slot, place, unit);
      CopyUnit(to, op_.cache.k + from[i], bytes);
      CopyUnit(Slot::UnitAt(slot + Slot::kValues, place, unit), op_.cache.v + from[i], bytes);
    }
  }

  // Behind the chunk's end nobody appends anything: who reads the slot need not wait for it.
  __device__ void Describe(const AttentionChunk& chunk, uint32_t first, const Lookups& lookups,
                           CacheSlotHeader& header) const {
    bool any = false;
#pragma unroll
    for (int i = 0; i < kLookups; ++i) {
      const uint32_t slot = lookups.page[i] * op_.cache.page_size + lookups.token[i];
      const bool is_there = first + 32 * i + Lane() < chunk.end;
      uint32_t row = CacheSlotHeader::kNobody;
      for (uint32_t other = 0; other < rows_; ++other) {
        const uint32_t others = __shfl_sync(kAll, own_slot_, static_cast<int>(other));
        if (is_there && others == slot) row = other;
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

  StepMemory& memory_;
  SlotWriter& writer_;
  uint32_t& items_;
  const AttentionDecodeArgs& op_;
  const CUtensorMap* const maps_;
  const uint32_t box_tokens_;
  const uint32_t chunks_;
  const uint32_t rows_;
  const uint32_t own_slot_;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_CACHE_FEEDER_CUH_
