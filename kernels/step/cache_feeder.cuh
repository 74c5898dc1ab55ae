// Keys and values on their way into the ring.
#ifndef CONCERT_KERNELS_STEP_CACHE_FEEDER_CUH_
#define CONCERT_KERNELS_STEP_CACHE_FEEDER_CUH_

#include "kernels/step/cache_slot.cuh"
#include "kernels/step/raw_index.cuh"

namespace concert::kernels::cuda {

template <int kDim>
class CacheFeeder {
 public:
  // `chunks`: BlockStage. `attentions`: of the launch, that came before; counts on.
  __device__ CacheFeeder(StepMemory& memory, SlotWriter& writer, const StepAttention& attention,
                         uint32_t chunks, uint32_t& attentions)
      : writer_(writer),
        op_(attention.op),
        maps_(attention.maps),
        box_shift_(31 - __clz(static_cast<int>(max(attention.box_tokens, 1u)))),
        page_size_(attention.op.cache.page_size),
        chunks_(chunks),
        items_(op_.rows * chunks_ * op_.kv_heads),
        rows_(attention.append.rows) {
    RawIndex slot;
    if (Lane() < rows_) slot.Load(attention.append.slots, Lane(), attention.append.slot_type);
    own_length_ = LengthOfRow(memory.lengths[attentions++ % 2]);
    own_slot_ = Lane() < rows_ ? SlotOf(slot.Get(attention.append.slot_type)) : ~0u;
  }

  // The block's items, slot by slot; one for an item without tokens, too, which tells so.
  __device__ void Feed() {
    if (maps_ != nullptr) {
      FeedAll</*kBoxes=*/true>();
    } else {
      FeedAll</*kBoxes=*/false>();
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
  __device__ uint32_t box_tokens() const { return 1u << box_shift_; }

  // Of the cache; ~0: none.
  __device__ uint32_t SlotOf(int64_t index) const {
    return index < 0 ? ~0u : static_cast<uint32_t>(Clamped(index, op_.cache.tokens()));
  }

  // The length of row `lane`. Read once, by one of the warps that load ahead: it may change
  // meanwhile, at a client's will, and they must agree on how many slots there are.
  __device__ uint32_t LengthOfRow(uint32_t (&lengths)[kMaxStepRows]) const {
    constexpr int kBarrier = 2;
    static_assert(kMaxStepRows == 32);
    const bool reads = threadIdx.x / 32 == kStepWarps;
    if (reads) lengths[Lane()] = Lane() < op_.rows ? op_.LengthOf(Lane()) : 0;
    NamedSync(kBarrier, 32 * kStepFeeders);
    return *const_cast<const volatile uint32_t*>(&lengths[Lane()]);
  }

  // REQUIRES: all lanes call it.
  __device__ AttentionChunk ChunkAt(uint32_t item) const {
    AttentionChunk chunk = ChunkOf(op_, chunks_, item);
    const uint32_t length = __shfl_sync(kAll, own_length_, static_cast<int>(chunk.row));
    const uint32_t visible = min(length, op_.span_max());
    const uint32_t each = chunks_ == 1 ? visible : (visible + chunks_ - 1) / chunks_;
    const uint32_t tokens =
        max(kMinStepChunk, (each + kStepChunkStep - 1) / kStepChunkStep * kStepChunkStep);
    chunk.begin = min(length, length - visible + chunk.index * tokens);
    chunk.end = min(length, chunk.begin + tokens);
    return chunk;
  }

  // Of the slot's tokens, which are the chunk's first; behind its end: of its last token.
  __device__ Lookups LookUp(const AttentionChunk& chunk) const {
    Lookups lookups;
#pragma unroll
    for (int i = 0; i < kLookups; ++i) {
      const uint32_t token = min(chunk.begin + 32 * i + Lane(), max(chunk.end, 1u) - 1);
      const KvPlace place = op_.PlaceOf(chunk.row, token);
      lookups.page[i] = static_cast<uint32_t>(place.page), lookups.token[i] = place.token;
    }
    return lookups;
  }

  // Up to kSlotsAtOnce slots, of items that are attended to side by side. Eight lanes are a
  // quarter, which stands for one of them.
  struct Round {
    uint32_t row, kv_head;
    uint32_t first, end;  // tokens: the slot's first, the chunk's end
    bool is_there;
    // The lane's box: tokens that are neighbours in a page. page: as the table has it, and perhaps
    // on its way.
    uint32_t page, token;
  };
  static constexpr uint32_t kQuarter = 32 / kSlotsAtOnce;
  static_assert(Slot::kTokens <= 8 * kQuarter);  // a box has eight tokens or more

  template <bool kBoxes>
  __device__ Round FirstRound(uint32_t item, uint32_t shift) const {
    const uint32_t quarter = Lane() / kQuarter, slots = kSlotsAtOnce >> shift;
    const uint32_t own = item + (quarter << shift) / kSlotsAtOnce * gridDim.x;
    const uint32_t slot = quarter & (slots - 1);
    const AttentionChunk chunk = ChunkAt(min(own, items_ - 1));
    Round round = {static_cast<uint32_t>(chunk.row), chunk.kv_head};
    round.first = chunk.begin + slot * Slot::kTokens;
    round.end = own < items_ ? chunk.end : 0;
    round.is_there = own < items_ && (slot == 0 || round.first < round.end);
    if (kBoxes) LookUpBox(round);
    return round;
  }
  // None of this waits for the table.
  __device__ void LookUpBox(Round& round) const {
    const uint32_t token =
        min(round.first + (Lane() % kQuarter << box_shift_), max(round.end, 1u) - 1);
    const uint32_t page = token / page_size_;
    round.page = round.row, round.token = token - page * page_size_;
    if (op_.page_table != 0) {
      const uint64_t at = uint64_t{round.row} * op_.table_stride + page;
      round.page = reinterpret_cast<const volatile uint32_t*>(op_.page_table)[at];
    }
  }

  // `kBoxes`: by tensor copies of boxes, else token by token.
  template <bool kBoxes>
  __device__ void FeedAll() {
    for (uint32_t item = blockIdx.x; item < items_;) {
      const uint32_t shift = SideBySideShift(item, items_);
      const uint32_t step = (kSlotsAtOnce >> shift) * Slot::kTokens;
      Round round = FirstRound<kBoxes>(item, shift);
      for (bool is_last = false; !is_last;) {
        Round next = round;
        next.first += step;
        next.is_there = next.first < next.end;
        is_last = !__any_sync(kAll, next.is_there);
        // The next boxes are looked up before these are copied, which takes longer.
        if (kBoxes && !is_last) LookUpBox(next);
        FeedRound<kBoxes>(round, is_last);
        round = next;
      }
      item += gridDim.x << shift;
    }
  }

  template <bool kBoxes>
  __device__ void FeedRound(Round& round, bool is_last) {
    constexpr uint32_t kFirstOfQuarters = 0x01010101;
    static_assert(kQuarter == 8);
    const uint32_t there = __ballot_sync(kAll, round.is_there) & kFirstOfQuarters;
    if (kBoxes) {
      const auto page = static_cast<int32_t>(round.page);
      round.page = static_cast<uint32_t>(Clamped(page, op_.cache.pages));
    }
#pragma unroll 1
    for (uint32_t left = there; left != 0; left &= left - 1) {
      if (!writer_.IsNextOwn()) {
        writer_.Pass();
        continue;
      }
      const int lane = __ffs(static_cast<int>(left)) - 1;  // the quarter's first
      const AttentionChunk chunk = {.row = __shfl_sync(kAll, round.row, lane),
                                    .kv_head = __shfl_sync(kAll, round.kv_head, lane),
                                    .begin = __shfl_sync(kAll, round.first, lane),
                                    .end = __shfl_sync(kAll, round.end, lane)};
      // Before the wait for the slot, so that the wait for the page table is not in the way.
      Lookups lookups;
      if (!kBoxes) lookups = LookUp(chunk);
      char* const slot = writer_.Take();
      BeginHeader(chunk, there, left == there, is_last, Slot::HeaderOf(slot));
      if (kBoxes) {
        CopyBoxes(chunk, round, lane, slot);
      } else {
        CopyUnits(chunk, lookups, slot);
      }
      writer_.Advance();
    }
  }

  // Of a slot, whose tokens are the chunk's: the boxes of lanes from `box` on. What of them is
  // behind the chunk's end is whatever the cache holds there.
  __device__ void CopyBoxes(const AttentionChunk& chunk, const Round& round, int box,
                            char* slot) const {
    const uint32_t keys = SharedAddress(slot), full = writer_.full();
    const uint32_t tokens = TokensOf(chunk);
    const uint32_t boxes = (tokens + box_tokens() - 1) >> box_shift_;
    CacheSlotHeader& header = Slot::HeaderOf(slot);
    const bool leads = Elect().is_leader;
    if (leads) ArriveExpecting(full, (boxes << box_shift_) * 2 * (2 * kDim));
    uint32_t token = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < boxes; ++i, token += box_tokens()) {
      const uint32_t page = __shfl_sync(kAll, round.page, box + static_cast<int>(i));
      const uint32_t of_page = __shfl_sync(kAll, round.token, box + static_cast<int>(i));
      if (leads) LoadToken(keys + token * Slot::kRowBytes, full, chunk.kv_head, of_page, page);
      NoteAppended(page * page_size_ + of_page, token, tokens, header);
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

  // Of a slot's chunk, which begins with the slot.
  static __device__ uint32_t TokensOf(const AttentionChunk& chunk) {
    return min(Slot::kTokens, chunk.end - min(chunk.begin, chunk.end));
  }

  // `there`: of the round's quarters, the first lanes of those that have a slot. That nobody
  // appends anything; then, whoever does so to a box of the cache, which is the slot's from `token`
  // on. Behind the chunk's end nobody does: who reads the slot need not wait for it.
  __device__ void BeginHeader(const AttentionChunk& chunk, uint32_t there, bool is_first,
                              bool is_last, CacheSlotHeader& header) const {
    static_assert(CacheSlotHeader::kNobody == 0xff && sizeof(header.appended) == 16 * 4);
    if (Lane() < 16) reinterpret_cast<uint32_t*>(header.appended)[Lane()] = ~0u;
    if (Lane() == 16) {
      header.tokens = TokensOf(chunk);
      header.any_appended = false;
      header.round = __popc(there) + (is_last ? CacheSlotHeader::kLastRound : 0);
    }
    if (is_first && Lane() % kQuarter == 0) {
      const bool has_slot = (there >> Lane() & 1) != 0;
      const uint32_t before = there & ((1u << Lane()) - 1);
      header.quarters[Lane() / kQuarter] =
          has_slot ? static_cast<uint8_t>(__popc(before)) : CacheSlotHeader::kNoSlot;
    }
    __syncwarp();
  }
  __device__ void NoteAppended(uint32_t box_slot, uint32_t token, uint32_t tokens,
                               CacheSlotHeader& header) const {
    const uint32_t within = own_slot_ - box_slot;
    if (within >= box_tokens() || token + within >= tokens) return;
    header.appended[token + within] = static_cast<uint8_t>(Lane());
    header.any_appended = true;
  }

  __device__ void CopyUnits(const AttentionChunk& chunk, const Lookups& lookups, char* slot) const {
    const uint32_t to = SharedAddress(slot), tokens = TokensOf(chunk);
#pragma unroll 1
    for (int i = 0; i < kLookups; ++i) {
      const int lookup = i == 0 ? 0 : kLookups - 1;
      const uint64_t at = op_.cache.TokenAt(lookups.page[lookup], lookups.token[lookup]) +
                          uint64_t{chunk.kv_head} * op_.cache.head_stride;
#pragma unroll 1
      for (uint32_t token = 0; token < 32; token += 4 * kAtOnce)
        CopyTokens(at, token, 32 * i, tokens, to);
    }
    Describe(lookups, tokens, Slot::HeaderOf(slot));
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

  __device__ void Describe(const Lookups& lookups, uint32_t tokens, CacheSlotHeader& header) const {
    bool any = false;
#pragma unroll
    for (int i = 0; i < kLookups; ++i) {
      const uint32_t slot = lookups.page[i] * page_size_ + lookups.token[i];
      const bool is_there = 32 * i + Lane() < tokens;
      uint32_t row = CacheSlotHeader::kNobody;
      for (uint32_t other = 0; other < rows_; ++other) {
        const uint32_t others = __shfl_sync(kAll, own_slot_, static_cast<int>(other));
        if (is_there && others == slot) row = other;
      }
      header.appended[32 * i + Lane()] = static_cast<uint8_t>(row);
      any = any || row != CacheSlotHeader::kNobody;
    }
    any = __any_sync(kAll, any);
    if (Lane() == 0) header.any_appended = any;
  }

  SlotWriter& writer_;
  const AttentionDecodeArgs& op_;
  const CUtensorMap* const maps_;
  // Of op_, which is in shared memory, and would be read again behind each wait.
  const uint32_t box_shift_, page_size_;  // box_shift: 2^box_shift tokens are a box
  const uint32_t chunks_, items_;
  const uint32_t rows_;  // that append
  uint32_t own_slot_, own_length_;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_CACHE_FEEDER_CUH_
