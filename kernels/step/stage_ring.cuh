// The stages of a run, on their way from memory to a block's warps: one warp fetches them ahead,
// into places that it fills in turn, all others read them.
#ifndef CONCERT_KERNELS_STEP_STAGE_RING_CUH_
#define CONCERT_KERNELS_STEP_STAGE_RING_CUH_

#include "kernels/step/division.cuh"
#include "kernels/step/slot_ring.cuh"

namespace concert::kernels::cuda {

inline constexpr uint32_t kStageWords = sizeof(Stage) / sizeof(uint4);
static_assert(kStageWords <= 32);

// This block's share of units: as many as others have, or one more.
__device__ inline UnitRange UnitsOfBlock(uint32_t units) {
  const Division each = DivisionOf(units, gridDim.x);
  const uint32_t begin = blockIdx.x * each.quotient + min(blockIdx.x, each.rest);
  return {begin, begin + each.quotient + (blockIdx.x < each.rest)};
}

// Into how many chunks rows are cut, so that every block has one.
__device__ inline uint32_t ChunksOf(const StepAttention& attention) {
  const uint32_t heads = attention.op.rows * attention.op.kv_heads;
  return max(1u, min(gridDim.x / heads, attention.chunks_max));
}

// The side of the warp that fetches.
class StageFetcher {
 public:
  __device__ StageFetcher(const StepArgs& args, StepMemory& memory)
      : args_(args), memory_(memory), lane_(threadIdx.x % 32) {}

  __device__ void Run() {
    Word next = Load(args_.first_stage);
    for (uint32_t i = args_.first_stage; i < args_.last_stage; ++i, place_.Advance()) {
      BlockStage& to = memory_.stages[place_.index()];
      WaitParity(SharedAddress(&memory_.stage_empty[place_.index()]), place_.parity() ^ 1);
      Keep(next, to.stage);
      next = Load(i + 1);
      __syncwarp();
      if (lane_ == 0) {
        FitToBlock(to);
        Arrive(SharedAddress(&memory_.stage_full[place_.index()]));
      }
    }
  }

 private:
  // A word of a stage as it lies in memory, and which bindings both of its halves are addresses of.
  struct Word {
    uint4 word = {};
    uint32_t bindings = 0;
  };

  // This lane's word of stage `index`, if there is one.
  __device__ Word Load(uint32_t index) const {
    Word loaded;
    if (index >= args_.last_stage || lane_ >= kStageWords) return loaded;
    loaded.word = __ldg(reinterpret_cast<const uint4*>(args_.stages + index) + lane_);
    loaded.bindings =
        __ldg(reinterpret_cast<const uint16_t*>(args_.stage_bindings + index) + lane_);
    return loaded;
  }
  static __device__ void MoveAddress(uint32_t& low, uint32_t& high, Address by) {
    const Address moved = (uint64_t{high} << 32 | low) + by;
    low = static_cast<uint32_t>(moved), high = static_cast<uint32_t>(moved >> 32);
  }
  // With bindings where this run has them.
  __device__ void Keep(Word loaded, Stage& stage) const {
    if (lane_ >= kStageWords) return;
    uint4& word = loaded.word;
    MoveAddress(word.x, word.y, args_.moves[loaded.bindings & 0xff]);
    MoveAddress(word.z, word.w, args_.moves[loaded.bindings >> 8]);
    reinterpret_cast<uint4*>(&stage)[lane_] = word;
  }
  // With what it exchanges where this run has that, and the block's share. Tensor maps are known to
  // the SM by then, which takes half a microsecond for each.
  __device__ void FitToBlock(BlockStage& to) const {
    if (to.stage.kind == StageKind::kGemm) {
      StepGemm& gemm = to.stage.gemm;
      AcquireMap(reinterpret_cast<const CUtensorMap*>(gemm.w_map));
      // Long before the computing warps ask for it.
      if (gemm.gain != 0) PrefetchBytes(gemm.gain, 2 * gemm.k);
      if (gemm.a_exchanged) gemm.a += args_.exchange;
      if (gemm.c_exchanged) gemm.c += args_.exchange;
      gemm.exchanged += args_.exchange;
      to.units = UnitsOfBlock(gemm.units());
    }
    to.turn = TurnOf(to.stage);
    if (to.stage.kind == StageKind::kAttention) {
      StepAttention& attention = to.stage.attention;
      if (attention.box_tokens != 0) {
        AcquireMap(attention.maps);
        AcquireMap(attention.maps + 1);
      }
      if (attention.q_exchanged()) attention.op.q += args_.exchange;
      if (attention.exchanges) attention.op.out += args_.exchange;
      to.chunks = ChunksOf(attention);
    }
  }
  __device__ StageTurn TurnOf(const Stage& stage) const {
    // Bindings that are used where they are given are not copied out.
    const bool tells = stage.awaited == Awaited::kAlways ||
                       (stage.awaited == Awaited::kByCopyOut && args_.first_stage == kTablesStage);
    uint32_t does = tells ? StageTurn::kTellsBlocks : 0;
    if (blockIdx.x < stage.units) does |= StageTurn::kTakesPart;
    if (stage.wait_count != 0) does |= StageTurn::kWaits;
    if (stage.kind == StageKind::kAttention && !stage.attention.q_exchanged())
      does |= StageTurn::kTellsFeeders;
    return {stage.kind, does};
  }

  const StepArgs& args_;
  StepMemory& memory_;
  const uint32_t lane_;
  RingPlace<kStagePlaces> place_;
};

// The side of a warp that reads all of them, one after the other.
class StageReader {
 public:
  __device__ explicit StageReader(StepMemory& memory) : memory_(memory) {}

  __device__ const BlockStage& Wait() const {
    WaitParity(SharedAddress(&memory_.stage_full[place_.index()]), place_.parity());
    return memory_.stages[place_.index()];
  }
  // REQUIRES: all lanes call it, and read nothing of the stage any more.
  __device__ void Release() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) Arrive(SharedAddress(&memory_.stage_empty[place_.index()]));
    place_.Advance();
  }

 private:
  StepMemory& memory_;
  RingPlace<kStagePlaces> place_;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_STAGE_RING_CUH_
