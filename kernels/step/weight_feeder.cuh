// Weights on their way into the ring.
#ifndef CONCERT_KERNELS_STEP_WEIGHT_FEEDER_CUH_
#define CONCERT_KERNELS_STEP_WEIGHT_FEEDER_CUH_

#include "kernels/step/slot_ring.cuh"

namespace concert::kernels::cuda {

// A block's share of units: those from `begin` on, before `end`.
struct UnitRange {
  uint32_t begin, end;
};
__device__ inline UnitRange UnitsOfBlock(uint32_t units) {
  const uint32_t parts = min(units, gridDim.x);
  if (blockIdx.x >= parts) return {0, 0};
  // In 32 bits: a matrix has at most 2^24 columns.
  return {units * blockIdx.x / parts, units * (blockIdx.x + 1) / parts};
}

// Fills a slot with a unit's rows of W. By one thread, which the compiler must know to be the only
// one: else it makes a loop over lanes of each copy, and the slot takes three times as long.
__device__ inline void FeedUnit(SlotWriter& writer, const StepGemm& gemm, uint32_t unit, uint32_t k,
                                uint32_t columns) {
  if (!writer.IsNextOwn()) return writer.Pass();
  uint32_t to = SharedAddress(writer.Take());
  const uint32_t full = writer.full();
  if (Elect().is_leader) {
    const uint32_t bytes = columns * 2;
    const uint64_t row_step = 2 * gemm.ldw;
    ArriveExpecting(full, kStepTile * bytes);
    ArriveTimes(full, kSlotArrivals - 1);
#pragma unroll
    for (uint32_t half = 0; half < kStepTile; half += kStepTile / 2) {
      Address from = gemm.w + 2 * (gemm.ColumnOf(unit, half) * gemm.ldw + k);
#pragma unroll
      for (uint32_t row = 0; row < kStepTile / 2; ++row) {
        LoadBytes(to, from, bytes, full);
        to += kSlotRowBytes;
        from += row_step;
      }
    }
  }
  __syncwarp();
  writer.Advance();
}

// In the order in which GemmStage takes slots: by passes, by chunks of K, by units. `pass`: units
// that the computing warps sum up at a time.
__device__ inline void FeedWeights(SlotWriter& writer, const StepGemm& gemm, uint32_t pass) {
  const UnitRange units = UnitsOfBlock(gemm.units());
  for (uint32_t begin = units.begin; begin < units.end; begin += pass) {
    const uint32_t end = min(begin + pass, units.end);
    for (uint32_t k = 0; k < gemm.k; k += kSlotColumns) {
      for (uint32_t unit = begin; unit < end; ++unit)
        FeedUnit(writer, gemm, unit, k, min(kSlotColumns, gemm.k - k));
    }
  }
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_WEIGHT_FEEDER_CUH_
