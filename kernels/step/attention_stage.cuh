// Attention's stage: blocks take chunks of rows' tokens for a head of the cache each, and whoever
// ends last of a row and head adds the chunks up.
#ifndef CONCERT_KERNELS_STEP_ATTENTION_STAGE_CUH_
#define CONCERT_KERNELS_STEP_ATTENTION_STAGE_CUH_

#include "kernels/attention_decode/attention_block.cuh"
#include "kernels/rows/row_threads.cuh"
#include "kernels/step/one_head.cuh"
#include "kernels/step/weight_ring.cuh"

namespace concert::kernels::cuda {

// A chunk is worth what it costs to add it up.
inline constexpr uint32_t kMinStepChunk = 128;

// Into how many chunks rows are cut, so that every block has one.
__device__ inline uint32_t ChunksOf(const AttentionDecodeArgs& op) {
  const uint32_t heads = op.rows * op.kv_heads;
  const uint32_t longest = (op.span_max() + kMinStepChunk - 1) / kMinStepChunk;
  return max(1u, min(gridDim.x / heads, longest));
}

// REQUIRES: all lanes of a warp call it; they see one length, which the client may change
// meanwhile.
__device__ inline AttentionChunk ChunkOf(const AttentionDecodeArgs& op, uint32_t chunks,
                                         uint32_t item) {
  AttentionChunk chunk;
  chunk.kv_head = item % op.kv_heads;
  const uint32_t of_row = item / op.kv_heads;
  chunk.index = of_row % chunks;
  chunk.row = of_row / chunks;
  const uint32_t length = __shfl_sync(kAll, op.LengthOf(chunk.row), 0);
  const uint32_t visible = min(length, op.span_max());
  const uint32_t tokens = max(kMinStepChunk, ((visible + chunks - 1) / chunks + 31) / 32 * 32);
  chunk.begin = min(length, length - visible + chunk.index * tokens);
  chunk.end = min(length, chunk.begin + tokens);
  return chunk;
}

// How many of a block's warps share an item: as few as give each warp of the block one, since a
// block with several items is the faster the less its warps wait for each other.
__device__ inline WarpTeam TeamOf(uint32_t items) {
  const uint32_t of_block = (items + gridDim.x - 1) / gridDim.x;
  uint32_t count = kStepWarps;
  while (count > 1 && kStepWarps / count < of_block) count /= 2;
  return {threadIdx.x / 32 / count * count, count};
}

// Empties, for the next run, what this one's chunk gives to the exchange.
__device__ inline void Empty(const StepArgs& args, const AttentionDecodeArgs& op,
                             const AttentionChunk& chunk, const WarpTeam& team) {
  const uint32_t columns = op.q_heads / op.kv_heads * op.head_dim;
  auto* to = reinterpret_cast<uint32_t*>(
      op.out + args.emptied + 2 * (chunk.row * op.out_stride + uint64_t{chunk.kv_head} * columns));
  for (uint32_t i = team.thread(); i < columns / 2; i += 32 * team.count) to[i] = ~0u;
}

template <int kDim>
__device__ void Attend(const StepArgs& args, const StepAttention& attention, StepMemory& memory) {
  using Results = WarpResults<kDim, kStepWarps>;
  static_assert(sizeof(Results) <= kStepScratchBytes);
  auto& results = *reinterpret_cast<Results*>(memory.scratch);
  AttentionDecodeArgs op = attention.op;
  if (attention.exchanges) op.out += args.exchange;
  const AttentionPartials partials = {ChunksOf(op), attention.sums, attention.states};
  const uint32_t group = op.q_heads / op.kv_heads, warp = threadIdx.x / 32;
  const uint32_t items = op.rows * partials.chunks * op.kv_heads;
  const WarpTeam team = TeamOf(items);
  // All teams keep step: the same number of turns, with nothing to do in the last for some.
  for (uint32_t turn = blockIdx.x; turn < items; turn += gridDim.x * (kStepWarps / team.count)) {
    const uint32_t item = turn + gridDim.x * (team.first / team.count);
    const bool has_item = item < items;
    const AttentionChunk chunk = ChunkOf(op, partials.chunks, min(item, items - 1));
    if (has_item && group == 1) {
      OneHead<kDim>::AttendChunk(op, chunk, team, results);
    } else if (has_item) {
      AttendChunk</*kEager=*/true>(op, chunk, team, results);
    }
    SyncRowThreads();
    if (has_item) FinishChunk(op, chunk, partials, team, results);
    if (has_item && attention.exchanges && chunk.index == 0) Empty(args, attention.op, chunk, team);
    SyncRowThreads();
    if (partials.chunks == 1) continue;
    // Cut into chunks there are no more items than blocks, so that the team is the block.
    if (threadIdx.x == 0) {
      // Releases this chunk's sums; whoever counts last has acquired the others'.
      __threadfence();
      uint32_t* ended = attention.ended + chunk.row * op.kv_heads + chunk.kv_head;
      memory.last = atomicInc(ended, partials.chunks - 1) == partials.chunks - 1;
      __threadfence();
    }
    SyncRowThreads();
    if (memory.last != 0 && warp < group) {
      CombineChunks<kDim>(op, partials, chunk.row * op.q_heads + chunk.kv_head * group + warp);
    }
  }
}

// Asks for this block's keys and values into the L2 cache. What is not there yet costs nothing but
// the request.
__device__ inline void PrefetchCache(const AttentionDecodeArgs& op) {
  constexpr uint32_t kAtOnce = 4;  // looked up before the first is asked for
  const uint32_t chunks = ChunksOf(op), items = op.rows * chunks * op.kv_heads;
  for (uint32_t item = blockIdx.x; item < items; item += gridDim.x) {
    const AttentionChunk chunk = ChunkOf(op, chunks, item);
    for (uint32_t first = chunk.begin; first < chunk.end; first += 32 * kAtOnce) {
      uint64_t at[kAtOnce];
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const uint32_t token = min(first + 32 * i + threadIdx.x % 32, chunk.end - 1);
        at[i] = 2 * (op.TokenAt(chunk.row, token) + uint64_t{chunk.kv_head} * op.cache.head_stride);
      }
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        for (uint32_t byte = 0; byte < 2u * op.head_dim; byte += 128) {
          asm volatile("prefetch.global.L2 [%0];" ::"l"(op.cache.k + at[i] + byte));
          asm volatile("prefetch.global.L2 [%0];" ::"l"(op.cache.v + at[i] + byte));
        }
      }
    }
  }
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_ATTENTION_STAGE_CUH_
