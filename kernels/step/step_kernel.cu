// A program as one launch: every block goes through the same list of stages, does its share of
// each, and waits only for the stages that the next one needs. All blocks must be on the GPU at
// once: they wait for each other.
//
// A block has eight warps that compute, three that load weights and caches ahead (slot_ring.cuh),
// which stream while the block waits for others, and one that fetches the list (stage_ring.cuh) and
// empties what the next run will exchange.
//
// What GEMMs and attention make for one another is looked for until it is there (kNotThere). For
// all else a stage's end is a word for each block that takes part, with the run's epoch, so that
// nothing is counted or reset. Stages wait only for earlier ones, so the first that has not ended
// can always go on, and every run ends.
#include "kernels/group/async.cuh"
#include "kernels/rows/row_compute.cuh"
#include "kernels/step/attention_stage.cuh"
#include "kernels/step/cache_feeder.cuh"
#include "kernels/step/gemm_stage.cuh"
#include "kernels/step/stage_ring.cuh"
#include "kernels/step/step_args.h"
#include "kernels/step/weight_feeder.cuh"

namespace concert::kernels::cuda {
namespace {

// Until every block has ended its part of a stage. A thread of `threads` looks at one of them, or
// two; whoever meets all of them after a fence has acquired what the blocks wrote (release:
// EndStage). Looks are relaxed: one that acquires empties the SM's L1 cache, each time.
__device__ void WaitForBlocks(const StepArgs& args, StepWait wait, uint32_t thread,
                              uint32_t threads) {
  if (wait.stage < args.first_stage) return;
  const uint32_t blocks = min(wait.units, gridDim.x);
  const uint32_t* ended = args.ended + wait.stage * kMaxStepBlocks;
  Patience patience;
  for (uint32_t block = thread; block < blocks; block += threads) {
    while (LoadRelaxed(ended + block) != args.epoch && !patience.GivesUp()) {
    }
  }
}

// Until all that the stage needs is there. Of the computing threads.
__device__ void WaitForInputs(const StepArgs& args, const Stage& stage) {
  WaitForBlocks(args, stage.wait, threadIdx.x, kStepComputeThreads);
  for (uint32_t i = 1; i < stage.wait_count; ++i) {
    WaitForBlocks(args, args.waits[stage.more_waits + i - 1], threadIdx.x, kStepComputeThreads);
  }
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
  SyncRowThreads();
}

// Releases what the block's threads stored. REQUIRES: they have met since.
__device__ void EndStage(const StepArgs& args, uint32_t stage) {
  asm volatile(
      "st.release.gpu.global.u32 [%0], %1;" ::"l"(args.ended + stage * kMaxStepBlocks + blockIdx.x),
      "r"(args.epoch)
      : "memory");
}

template <typename Word>
__device__ void MovePiece(Address to, Address from, uint64_t bytes) {
  const uint64_t step = uint64_t{gridDim.x} * kStepComputeThreads;
  for (uint64_t i = uint64_t{blockIdx.x} * kStepComputeThreads + threadIdx.x;
       i < bytes / sizeof(Word); i += step) {
    reinterpret_cast<Word*>(to)[i] = reinterpret_cast<const volatile Word*>(from)[i];
  }
}

__device__ void Copy(const StepArgs& args, const StepCopy& copy) {
  for (uint32_t i = 0; i < copy.count; ++i) {
    const StepCopy::Piece& piece = copy.pieces[i];
    const Address from = piece.from_binding < 0 ? piece.from : args.bindings[piece.from_binding];
    const Address to = piece.to_binding < 0 ? piece.to : args.bindings[piece.to_binding];
    if ((from | to | piece.bytes) % sizeof(uint32_t) == 0) {
      MovePiece<uint32_t>(to, from, piece.bytes);
    } else {
      MovePiece<uint8_t>(to, from, piece.bytes);
    }
  }
}

// Called, not inlined: its many kinds would keep what never changes in registers that others need.
__device__ __noinline__ void ComputeRows(const RowTask& task, uint32_t blocks) {
  ComputeRowTask</*kOfStep=*/true>(task, blockIdx.x, blocks);
}

template <int kRowTiles>
__device__ void Compute(const StepArgs& args, const BlockStage& at, StageKind kind,
                        StepMemory& memory, SlotReader& ring, ScratchTurn& scratch) {
  const Stage& stage = at.stage;
  // No switch: its table would be one more thing to wait for.
  if (kind == StageKind::kGemm)
    return GemmStage<kRowTiles>(stage.gemm, memory, ring, scratch).Run(at.units);
  if (kind == StageKind::kCopy) return Copy(args, stage.copy);
  if (kind == StageKind::kRows) return ComputeRows(stage.row, min(stage.units, gridDim.x));
  if (stage.attention.op.head_dim == 64) {
    AttentionStage<64>(args, stage.attention, at.chunks, ring, scratch).Run();
  } else {
    AttentionStage<128>(args, stage.attention, at.chunks, ring, scratch).Run();
  }
}

// This block's part of stage `index`.
template <int kRowTiles>
__device__ void TakePart(const StepArgs& args, uint32_t index, const BlockStage& at, StageTurn turn,
                         StepMemory& memory, SlotReader& ring, ScratchTurn& scratch) {
  if (turn.Has(StageTurn::kWaits)) WaitForInputs(args, at.stage);
  if (threadIdx.x == 0 && turn.Has(StageTurn::kTellsFeeders)) {
    // With all that the block has acquired: AwaitStage.
    __threadfence_block();
    *const_cast<volatile uint32_t*>(&memory.acquired) = index;
  }
  Compute<kRowTiles>(args, at, turn.kind(), memory, ring, scratch);
  // Else warps go on by themselves: what the next stage overwrites is ScratchTurn's to know.
  if (!turn.Has(StageTurn::kTellsBlocks)) return;
  SyncRowThreads();
  if (threadIdx.x == 0) EndStage(args, index);
}

// The warps that compute.
template <int kRowTiles>
__device__ void ComputeStages(const StepArgs& args, StepMemory& memory) {
  StageReader stages(memory);
  SlotReader ring(memory);
  ScratchTurn scratch(memory.scratch);
  for (uint32_t i = args.first_stage; i < args.last_stage; ++i) {
    const BlockStage& at = stages.Wait();
    if (threadIdx.x == 0) memory.at_work = i;
    const StageTurn turn = at.turn;
    if (turn.Has(StageTurn::kTakesPart))
      TakePart<kRowTiles>(args, i, at, turn, memory, ring, scratch);
    stages.Release();
  }
  SyncRowThreads();
  if (threadIdx.x == 0 && memory.stalled_at != StepMemory::kNowhere)
    TellOfStall(args, memory.stalled_at);
}

// Until the computing warps have all that stage `index`, an attention, waits for. Ends for certain:
// they wait for nothing of the ring that comes behind it.
__device__ void AwaitStage(const StepMemory& memory, uint32_t index) {
  while (*const_cast<const volatile uint32_t*>(&memory.acquired) < index) __nanosleep(100);
  __threadfence();
  FenceTensorCopies();
}

__device__ void FeedCache(StepMemory& memory, SlotWriter& writer, const BlockStage& at,
                          uint32_t& attentions) {
  const StepAttention& attention = at.stage.attention;
  if (attention.op.head_dim == 64) {
    CacheFeeder<64>(memory, writer, attention, at.chunks, attentions).Feed();
  } else {
    CacheFeeder<128>(memory, writer, attention, at.chunks, attentions).Feed();
  }
}

// A warp that loads ahead.
template <int kRowTiles>
__device__ void FeedStages(const StepArgs& args, StepMemory& memory) {
  const uint32_t lane = threadIdx.x % 32;
  StageReader stages(memory);
  SlotWriter writer(memory, args.in_flight);
  uint32_t attentions = 0;
  bool has_tables = false;  // of this run, by which caches are read
  for (uint32_t i = args.first_stage; i < args.last_stage; ++i, stages.Release()) {
    const BlockStage& at = stages.Wait();
    const Stage& stage = at.stage;
    if (stage.kind == StageKind::kGemm)
      FeedWeights(writer, stage.gemm, at.units, StepPassTiles(kRowTiles));
    if (stage.kind != StageKind::kAttention) continue;
    if (!stage.attention.q_exchanged()) {
      AwaitStage(memory, i);
    } else if (!has_tables) {
      WaitForBlocks(args, {kTablesStage, kAllBlocks}, lane, 32);
      // Each lane has seen other blocks' ends, and one copies what all of these have made.
      __threadfence();
      FenceTensorCopies();
      __syncwarp();
      has_tables = true;
    }
    FeedCache(memory, writer, at, attentions);
  }
}

// Empties this block's part of what the next run will exchange.
__device__ void EmptyExchange(const StepArgs& args) {
  const uint64_t step = uint64_t{gridDim.x} * 32;
  for (uint64_t i = uint64_t{blockIdx.x} * 32 + threadIdx.x % 32;
       i < args.emptied_bytes / sizeof(uint4); i += step) {
    reinterpret_cast<uint4*>(args.emptied)[i] = make_uint4(~0u, ~0u, ~0u, ~0u);
  }
}

// Of a thread, so that as few as can be are spilled. Together no more than a launch gives: with the
// compiler's 168 for each thread, 504 for three warpgroups. A claim for more ends the launch.
template <int kRowTiles>
struct Registers {
  static constexpr int kFeed = kRowTiles == 1 ? 88 : 72;
  static constexpr int kCompute = (504 - kFeed) / 2;
  static_assert(kFeed % 8 == 0 && kCompute % 8 == 0);
};

template <int kRowTiles>
__device__ void RunStages(const StepArgs& args) {
  StepMemory& memory = MemoryOfBlock();
  const uint32_t warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    memory.at_work = memory.acquired = 0;
    memory.stalled_at = StepMemory::kNowhere;
    for (int i = 0; i < kSlots; ++i) {
      InitBarrier(SharedAddress(&memory.full[i]), kSlotArrivals);
      InitBarrier(SharedAddress(&memory.empty[i]), kStepWarps);
    }
    for (int i = 0; i < kStagePlaces; ++i) {
      InitBarrier(SharedAddress(&memory.stage_full[i]), 1);
      InitBarrier(SharedAddress(&memory.stage_empty[i]), kStageReaders);
    }
    PublishBarriers();
  }
  __syncthreads();
  if (warp < kStepWarps) {
    ClaimRegisters<Registers<kRowTiles>::kCompute>();
    return ComputeStages<kRowTiles>(args, memory);
  }
  ReleaseRegisters<Registers<kRowTiles>::kFeed>();
  const uint32_t other = warp - kStepWarps;
  if (other < kStepFeeders) return FeedStages<kRowTiles>(args, memory);
  StageFetcher(args, memory).Run();
  EmptyExchange(args);
}

}  // namespace

// By how many rows of A there are, at most: a thread has its part of them in registers.
#define CONCERT_STEP(rows)                                         \
  extern "C" __global__ void __launch_bounds__(kStepThreads, 1)    \
      concert_step_##rows(const __grid_constant__ StepArgs args) { \
    RunStages<rows / 8>(args);                                     \
  }
CONCERT_STEP(8)
CONCERT_STEP(16)
CONCERT_STEP(32)

}  // namespace concert::kernels::cuda
