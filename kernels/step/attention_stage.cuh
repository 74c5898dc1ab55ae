// Attention's stage: blocks take chunks of rows' tokens for a head of the cache each, which come
// through the ring. The blocks that share a row's head of the cache add up each other's chunks,
// head of q by head.
#ifndef CONCERT_KERNELS_STEP_ATTENTION_STAGE_CUH_
#define CONCERT_KERNELS_STEP_ATTENTION_STAGE_CUH_

#include "kernels/step/cache_slot.cuh"
#include "kernels/step/exchange_words.cuh"
#include "kernels/step/scratch_turn.cuh"

namespace concert::kernels::cuda {

template <int kDim>
class AttentionStage {
 public:
  // `chunks`: BlockStage.
  __device__ AttentionStage(const StepArgs& args, const StepAttention& attention, uint32_t chunks,
                            SlotReader& ring, ScratchTurn& scratch)
      : args_(args),
        attention_(attention),
        chunks_(chunks),
        ring_(ring),
        scratch_(scratch),
        op_(attention.op) {}

  __device__ void Run() {
    const uint32_t items = op_.rows * chunks_ * op_.kv_heads;
    for (uint32_t item = blockIdx.x; item < items;) {
      const uint32_t shift = SideBySideShift(item, items), warps = kStepWarps >> shift;
      const uint32_t own = item + (threadIdx.x >> (kThreadsShift - shift)) * gridDim.x;
      const AttentionChunk chunk = ChunkOf(op_, chunks_, own);
      const Results& results = Attend(chunk, own < items, warps);
      SyncRowThreads();
      if (own < items) Finish(chunk, warps, results);
      // Cut into chunks there are no more items than blocks, so that all of a row are at work.
      if (chunks_ > 1) AddUp(chunk);
      item += gridDim.x << shift;
    }
  }

 private:
  using Results = WarpResults<kDim, kStepWarps>;
  using Slot = CacheSlot<kDim>;
  using Warp = SlotAttention<kDim, Slot>;
  static_assert(sizeof(Results) <= kStepScratchBytes);
  static_assert(Slot::kTokens == 2 * Warp::kTokens);
  static constexpr uint32_t kChunksAtOnce = 4;
  static constexpr uint32_t kThreadsShift = 8;
  static_assert(kStepComputeThreads == 1 << kThreadsShift);

  // This warp's part of its chunk, to the others'. `is_there`: else the warp has none, since there
  // are no more of them; it goes with the others. `warps`: that share it, a power of two.
  __device__ const Results& Attend(const AttentionChunk& chunk, bool is_there, uint32_t warps) {
    const uint32_t warp = threadIdx.x / 32, half = warp % 2 * Warp::kTokens;
    const bool has_q = is_there && threadIdx.x % 32 / 4 < attention_.group;
    Warp attention;
    LoadQ(chunk, has_q, attention);
    bool q_is_there = !attention_.q_exchanged();
    for (uint32_t round = 0; (round & CacheSlotHeader::kLastRound) == 0;) {
      const CacheSlotHeader& first = Slot::HeaderOf(ring_.Wait());
      round = first.round;
      const uint32_t place = first.quarters[warp / 2];
      if (place != CacheSlotHeader::kNoSlot) {
        char* const slot = ring_.Wait(place);
        const uint32_t tokens = Slot::HeaderOf(slot).tokens;
        if (half < tokens) Complete(chunk, slot, half, tokens);
        // The chunk's first warp awaits q without tokens, too: until then what the chunk leaves
        // could take the place of what others have not read yet, as the sums of the attention
        // before (WaitPlanner).
        if (!q_is_there && (half < tokens || (warp & (warps - 1)) == 0)) {
          AwaitQ(chunk, has_q, attention);
          q_is_there = true;
        }
        if (half < tokens) attention.Add(op_, slot, half, tokens);
      }
      const uint32_t slots = round % CacheSlotHeader::kLastRound;
      for (uint32_t i = 0; i < kStepFeeders; ++i) ring_.Wait(slots - min(slots, i + 1));
      ring_.Release(slots);
    }
    auto& results = *reinterpret_cast<Results*>(scratch_.Take(sizeof(Results)));
    attention.Keep(attention_.group, results);
    return results;
  }

  // What of a slot's half that begins at token `half` the copies have not brought.
  __device__ void Complete(const AttentionChunk& chunk, char* slot, uint32_t half,
                           uint32_t tokens) const {
    const bool ends = half + Warp::kTokens > tokens, appends = Slot::HeaderOf(slot).any_appended;
    if (ends) ClearBehind(slot, half, tokens - half);
    if (appends) TakeAppended(chunk, slot, half);
    // What is stored in a slot comes before the next tensor copy to it.
    if (ends || appends) PublishShared();
  }

  // `has_q`: whether this lane's head of q is one.
  __device__ void LoadQ(const AttentionChunk& chunk, bool has_q, Warp& attention) const {
    const uint32_t head = threadIdx.x % 32 / 4;
    attention.LoadQ(
        op_.q + 2 * (chunk.row * op_.q_stride + (chunk.kv_head * attention_.group + head) * kDim),
        has_q, [](Address word) { return LoadWord(word); });
  }
  // Asks again until all of it is there.
  __device__ void AwaitQ(const AttentionChunk& chunk, bool has_q, Warp& attention) const {
    Patience patience;
    while (!__all_sync(kAll, !IsEmpty(attention.MostOfQ())) && !patience.GivesUp())
      LoadQ(chunk, has_q, attention);
  }

  // Of half a slot's tokens, from `first` on, there are `tokens`: values of the others, which weigh
  // nothing, must be numbers all the same.
  __device__ void ClearBehind(const char* slot, uint32_t first, uint32_t tokens) const {
    constexpr uint32_t kUnits = kDim / 8;
    const uint32_t values = SharedAddress(slot) + Slot::kValues;
    for (uint32_t i = tokens * kUnits + threadIdx.x % 32; i < Warp::kTokens * kUnits; i += 32)
      StoreShared(Slot::UnitAt(values, first + i / kUnits, i % kUnits), uint4{});
    __syncwarp();
  }

  // Of half a slot's tokens, from `first` on, those that rows append: from the exchange, into the
  // slot. A lane takes a unit of the keys or of the values.
  __device__ void TakeAppended(const AttentionChunk& chunk, char* slot, uint32_t first) const {
    constexpr uint32_t kUnits = kDim / 8;
    const uint32_t lane = threadIdx.x % 32, unit = lane % kUnits, is_value = lane / kUnits;
    const uint32_t row_of_lane = lane < Warp::kTokens ? Slot::HeaderOf(slot).appended[first + lane]
                                                      : CacheSlotHeader::kNobody;
    uint32_t appended = __ballot_sync(kAll, row_of_lane != CacheSlotHeader::kNobody);
    for (; appended != 0; appended &= appended - 1) {
      const uint32_t token = __ffs(static_cast<int>(appended)) - 1;
      const uint64_t row = __shfl_sync(kAll, row_of_lane, static_cast<int>(token));
      if (is_value > 1) continue;
      const uint32_t head = op_.q_heads + is_value * op_.kv_heads + chunk.kv_head;
      const uint4 pack = AwaitPack(op_.q + 2 * (row * op_.q_stride + head * kDim + 8 * unit));
      StoreShared(Slot::UnitAt(SharedAddress(slot) + is_value * Slot::kValues, first + token, unit),
                  pack);
    }
    __syncwarp();
  }

  // The chunk's results, by the warps that share it: to out, or for AddUp.
  __device__ void Finish(const AttentionChunk& chunk, uint32_t warps,
                         const Results& results) const {
    const uint32_t within = threadIdx.x & (32 * warps - 1);
    const auto first_warp = static_cast<int>((threadIdx.x - within) / 32);
    for (uint32_t i = within; i < attention_.group * kDim; i += 32 * warps) {
      const uint32_t head = i / kDim, element = i % kDim;
      SoftmaxState all;
      const float sum =
          AddUpWarps(results, static_cast<int>(warps), head, element, all, first_warp);
      if (chunks_ == 1) {
        StoreOut(chunk, head, element, Quotient(sum, all));
        continue;
      }
      const uint64_t partial = FirstChunk(chunk, head) + chunk.index;
      StoreTagged(attention_.sums + partial * kDim + element, sum, tag());
      if (element != 0) continue;
      StoreTagged(attention_.states + 2 * partial, all.largest, tag());
      StoreTagged(attention_.states + 2 * partial + 1, all.sum, tag());
    }
  }

  // All chunks of the heads of q that fall to this one.
  __device__ void AddUp(const AttentionChunk& chunk) const {
    for (uint32_t i = threadIdx.x; i < attention_.group * kDim; i += kStepComputeThreads) {
      const uint32_t head = i / kDim, element = i % kDim;
      if (DivisionOf(head, chunks_).rest != chunk.index) continue;
      const uint64_t first = FirstChunk(chunk, head);
      SoftmaxState all = {-INFINITY, 0};
      float sum = 0;
      for (uint32_t begin = 0; begin < chunks_; begin += kChunksAtOnce)
        AddChunks(first, begin, element, all, sum);
      StoreOut(chunk, head, element, Quotient(sum, all));
    }
  }

  // Of kChunksAtOnce chunks, from `begin` on, what they have of an element.
  __device__ void AddChunks(uint64_t first, uint32_t begin, uint32_t element, SoftmaxState& all,
                            float& sum) const {
    Tagged sums[kChunksAtOnce], largest[kChunksAtOnce], weights[kChunksAtOnce];
    Patience patience;
    for (bool is_there = false; !is_there && !patience.GivesUp();) {
      is_there = true;
#pragma unroll
      for (uint32_t i = 0; i < kChunksAtOnce; ++i) {
        const uint64_t partial = first + min(begin + i, chunks_ - 1);
        sums[i] = LoadTagged(attention_.sums + partial * kDim + element);
        largest[i] = LoadTagged(attention_.states + 2 * partial);
        weights[i] = LoadTagged(attention_.states + 2 * partial + 1);
      }
#pragma unroll
      for (uint32_t i = 0; i < kChunksAtOnce; ++i) {
        is_there =
            is_there && sums[i].tag == tag() && largest[i].tag == tag() && weights[i].tag == tag();
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < kChunksAtOnce; ++i) {
      if (begin + i >= chunks_) break;
      const SoftmaxState state = {largest[i].value, weights[i].value};
      const float most = fmaxf(all.largest, state.largest);
      const float before = WeightOf(all, most), weight = WeightOf(state, most);
      all = {most, before * all.sum + weight * state.sum};
      sum = before * sum + weight * sums[i].value;
    }
  }

  // Where the chunks of a head of q begin.
  __device__ uint64_t FirstChunk(const AttentionChunk& chunk, uint32_t head) const {
    return (chunk.row * op_.q_heads + chunk.kv_head * attention_.group + head) * chunks_;
  }
  // Of this run and stage: what it puts where others had theirs is told apart by it.
  __device__ uint32_t tag() const { return args_.first_tag + attention_.number; }
  __device__ void StoreOut(const AttentionChunk& chunk, uint32_t head, uint32_t element,
                           float value) const {
    const uint32_t q_head = chunk.kv_head * attention_.group + head;
    reinterpret_cast<__nv_bfloat16*>(
        op_.out)[chunk.row * op_.out_stride + q_head * kDim + element] = __float2bfloat16_rn(value);
  }

  const StepArgs& args_;
  const StepAttention& attention_;
  const uint32_t chunks_;
  SlotReader& ring_;
  ScratchTurn& scratch_;
  const AttentionDecodeArgs op_;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_ATTENTION_STAGE_CUH_
