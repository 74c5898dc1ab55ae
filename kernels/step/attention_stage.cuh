// Attention's stage: blocks take chunks of rows' tokens for a head of the cache each, which come
// through the ring, and whoever ends last of a row and head adds the chunks up.
#ifndef CONCERT_KERNELS_STEP_ATTENTION_STAGE_CUH_
#define CONCERT_KERNELS_STEP_ATTENTION_STAGE_CUH_

#include "kernels/rows/row_threads.cuh"
#include "kernels/step/cache_slot.cuh"
#include "kernels/step/exchange_words.cuh"

namespace concert::kernels::cuda {

template <int kDim>
class AttentionStage {
 public:
  __device__ AttentionStage(const StepArgs& args, const StepAttention& attention,
                            StepMemory& memory, SlotReader& ring)
      : args_(args),
        attention_(attention),
        memory_(memory),
        results_(*reinterpret_cast<Results*>(memory.scratch)),
        ring_(ring),
        op_(attention.op) {
    if (attention.append.rows != 0) op_.q += args.exchange;
    if (attention.exchanges) op_.out += args.exchange;
  }

  __device__ void Run() {
    const AttentionPartials partials = {ChunksOf(op_), attention_.sums, attention_.states};
    const uint32_t items = op_.rows * partials.chunks * op_.kv_heads;
    for (uint32_t item = blockIdx.x; item < items; item += gridDim.x) {
      const AttentionChunk chunk = ChunkOf(op_, partials.chunks, item);
      Attend(chunk);
      SyncRowThreads();
      FinishChunk(op_, chunk, partials, results_);
      if (attention_.exchanges && chunk.index == 0) Empty(chunk);
      SyncRowThreads();
      if (partials.chunks > 1) AddUp(chunk, partials);
    }
  }

 private:
  using Results = WarpResults<kDim, kStepWarps>;
  using Slot = CacheSlot<kDim>;
  using Warp = WarpAttention<kDim>;
  static_assert(sizeof(Results) <= kStepScratchBytes);
  // A warp takes half a slot, the next takes the other.
  static_assert(Slot::kTokens == 2 * Warp::kTokens);

  // This warp's part of a chunk, into the results.
  __device__ void Attend(AttentionChunk chunk) {
    Warp attention;
    LoadQ(chunk, attention.q);
    bool q_is_there = attention_.append.rows == 0;
    uint32_t portion = 0;  // of the chunk: half a slot
    for (;;) {
      char* const slot = ring_.Wait();
      const CacheSlotHeader& header = Slot::HeaderOf(slot);
      chunk.begin = header.begin, chunk.end = header.end;
#pragma unroll 1
      for (uint32_t half = 0; half < 2; ++half, ++portion) {
        const uint32_t first = chunk.begin + portion * Warp::kTokens;
        if (portion % kStepWarps != threadIdx.x / 32 || first >= chunk.end) continue;
        if (header.any_appended) TakeAppended(chunk, slot, half * Warp::kTokens);
        if (!q_is_there) AwaitQ(chunk, attention.q);
        q_is_there = true;
        attention.Add(op_, first, chunk.end, TokensInSlot<kDim>(slot, half * Warp::kTokens));
      }
      PublishShared();  // what TakeAppended wrote there comes before the next bulk copy to the slot
      ring_.Release();
      if (chunk.begin + portion * Warp::kTokens >= chunk.end) break;
    }
    Keep(attention, results_);
  }

  __device__ void LoadQ(const AttentionChunk& chunk, uint4 (&q)[Warp::kUnits]) const {
    const uint32_t group = op_.q_heads / op_.kv_heads;
    const uint32_t head = threadIdx.x % 32 / 4, quarter = threadIdx.x % 4;
    const Address at = op_.q + 2 * (chunk.row * op_.q_stride +
                                    (chunk.kv_head * group + head) * kDim + 8 * quarter);
#pragma unroll
    for (int i = 0; i < Warp::kUnits; ++i) {
      q[i] = head < group ? LoadPack(at + 2 * 32 * i) : uint4{};
    }
  }
  // Loads again until all of it is there.
  __device__ void AwaitQ(const AttentionChunk& chunk, uint4 (&q)[Warp::kUnits]) const {
    Patience patience;
    for (;;) {
      bool is_there = true;
#pragma unroll
      for (const uint4& pack : q) is_there = is_there && IsThere(pack);
      if (__all_sync(kAll, is_there) || patience.GivesUp(args_)) return;
      LoadQ(chunk, q);
    }
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
      const uint4 pack =
          AwaitPack(args_, op_.q + 2 * (row * op_.q_stride + head * kDim + 8 * unit));
      *reinterpret_cast<uint4*>(slot + is_value * Slot::kValues +
                                Slot::PlaceOf(first + token, unit)) = pack;
    }
    __syncwarp();
  }

  // Empties, for the next run, what this one's chunk gives to the exchange.
  __device__ void Empty(const AttentionChunk& chunk) const {
    const uint32_t columns = op_.q_heads / op_.kv_heads * kDim;
    auto* to = reinterpret_cast<uint32_t*>(
        attention_.op.out + args_.emptied +
        2 * (chunk.row * op_.out_stride + uint64_t{chunk.kv_head} * columns));
    for (uint32_t i = threadIdx.x; i < columns / 2; i += kStepComputeThreads) to[i] = ~0u;
  }

  // Whoever is the last of a row and head adds its chunks up.
  __device__ void AddUp(const AttentionChunk& chunk, const AttentionPartials& partials) {
    if (threadIdx.x == 0) {
      // Releases this chunk's sums; whoever counts last has acquired the others'.
      __threadfence();
      uint32_t* ended = attention_.ended + chunk.row * op_.kv_heads + chunk.kv_head;
      memory_.last = atomicInc(ended, partials.chunks - 1) == partials.chunks - 1;
      __threadfence();
    }
    SyncRowThreads();
    const uint32_t group = op_.q_heads / op_.kv_heads, warp = threadIdx.x / 32;
    if (memory_.last == 0 || warp >= group) return;
    CombineChunks<kDim>(op_, partials, chunk.row * op_.q_heads + chunk.kv_head * group + warp);
  }

  const StepArgs& args_;
  const StepAttention& attention_;
  StepMemory& memory_;
  Results& results_;
  SlotReader& ring_;
  AttentionDecodeArgs op_;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_ATTENTION_STAGE_CUH_
