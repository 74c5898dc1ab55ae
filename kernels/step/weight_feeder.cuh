// Weights on their way into the ring.
#ifndef CONCERT_KERNELS_STEP_WEIGHT_FEEDER_CUH_
#define CONCERT_KERNELS_STEP_WEIGHT_FEEDER_CUH_

#include "kernels/step/slot_ring.cuh"

namespace concert::kernels::cuda {

// Fills a slot with a unit's rows of W; behind the end of K with zeros. By one thread, which the
// compiler must know to be the only one: else it makes a loop over lanes of each copy.
__device__ inline void FeedUnit(SlotWriter& writer, const StepGemm& gemm, uint32_t unit, uint32_t k,
                                uint32_t in_whole_slot) {
  if (!writer.IsNextOwn()) return writer.Pass();
  const StepGemm::Halves columns = gemm.HalvesOf(unit);
  const uint32_t to = SharedAddress(writer.Take(in_whole_slot));
  const uint32_t full = writer.full();
  if (Elect().is_leader) {
    const auto* map = reinterpret_cast<const CUtensorMap*>(gemm.w_map);
    const uint32_t line = k / kStepColumnStep;
    ArriveExpecting(full, 2 * kSlotBoxBytes);
    ArriveTimes(full, kSlotArrivals - 1);
    LoadBox(to, map, full, {0, columns.first, line}, writer.hint());
    LoadBox(to + kSlotBoxStep, map, full, {0, columns.second, line}, writer.hint());
  }
  __syncwarp();
  writer.Advance();
}

// In the order in which GemmStage takes slots: by passes, by chunks of K, by units. `pass`: units
// that the computing warps sum up at a time.
// `staged` is in shared memory, and would be read again behind each wait.
__device__ inline void FeedWeights(SlotWriter& writer, const StepGemm& staged, UnitRange units,
                                   uint32_t pass) {
  const StepGemm gemm = staged;
  for (uint32_t begin = units.begin; begin < units.end; begin += pass) {
    const uint32_t end = min(begin + pass, units.end);
    for (uint32_t k = 0; k < gemm.k; k += kSlotColumns) {
      const uint32_t columns = gemm.k - k;
      const uint32_t in_whole_slot = columns > kSlotColumns / 2   ? 1
                                     : columns > kSlotColumns / 4 ? 2
                                                                  : 4;
      for (uint32_t unit = begin; unit < end; ++unit)
        FeedUnit(writer, gemm, unit, k, in_whole_slot);
    }
  }
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_WEIGHT_FEEDER_CUH_
