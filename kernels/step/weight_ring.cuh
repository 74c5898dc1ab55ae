// A block's ring of slots in shared memory, through which weights come: one warp fills it ahead of
// everything that the block waits for, since weights depend on nothing.
#ifndef CONCERT_KERNELS_STEP_WEIGHT_RING_CUH_
#define CONCERT_KERNELS_STEP_WEIGHT_RING_CUH_

#include "kernels/group/async.cuh"
#include "kernels/step/step_shared.h"

namespace concert::kernels::cuda {

// A place in the ring, which goes round.
class RingPlace {
 public:
  __device__ int slot() const { return slot_; }
  __device__ uint32_t parity() const { return parity_; }
  __device__ void Advance() {
    if (++slot_ < kSlots) return;
    slot_ = 0;
    parity_ ^= 1;
  }

 private:
  int slot_ = 0;
  uint32_t parity_ = 0;
};

// A block's share of units: those from `begin` on, before `end`.
struct UnitRange {
  uint32_t begin, end;
};
__device__ inline UnitRange UnitsOfBlock(uint32_t units) {
  const uint32_t parts = min(units, gridDim.x);
  if (blockIdx.x >= parts) return {0, 0};
  return {static_cast<uint32_t>(uint64_t{units} * blockIdx.x / parts),
          static_cast<uint32_t>(uint64_t{units} * (blockIdx.x + 1) / parts)};
}

// The warp that fills the ring.
class Feeder {
 public:
  // `pass`: units that the computing warps sum up at a time, in every GEMM of the launch.
  __device__ Feeder(StepMemory& memory, uint32_t in_flight, uint32_t pass)
      : memory_(memory), in_flight_(in_flight), pass_(pass) {}

  // In the order in which GemmStage takes slots: by passes, by chunks of K, by units.
  __device__ void Feed(const StepGemm& gemm) {
    const UnitRange units = UnitsOfBlock(gemm.units());
    for (uint32_t begin = units.begin; begin < units.end; begin += pass_) {
      const uint32_t end = min(begin + pass_, units.end);
      for (uint32_t k = 0; k < gemm.k; k += kSlotColumns) {
        for (uint32_t unit = begin; unit < end; ++unit)
          Load(gemm, unit, k, min(kSlotColumns, gemm.k - k));
      }
    }
  }

 private:
  // By one thread, which the compiler must know to be the only one: else it makes a loop over lanes
  // of each copy, and the slot takes three times as long.
  __device__ void Load(const StepGemm& gemm, uint32_t unit, uint32_t k, uint32_t columns) {
    const uint32_t full = SharedAddress(&memory_.full[next_.slot()]);
    WaitParity(SharedAddress(&memory_.empty[next_.slot()]), next_.parity() ^ 1);
    if (issued_ >= in_flight_) {  // requests that queue for memory delay who waits for other blocks
      WaitParity(SharedAddress(&memory_.full[landed_.slot()]), landed_.parity());
      landed_.Advance();
    }
    ++issued_;
    if (Elect().is_leader) {
      const uint32_t bytes = columns * 2;
      const uint64_t row_step = 2 * gemm.ldw;
      uint32_t to = SharedAddress(memory_.slots[next_.slot()]);
      ArriveExpecting(full, kStepTile * bytes);
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
    next_.Advance();
  }

  StepMemory& memory_;
  const uint32_t in_flight_, pass_;
  RingPlace next_, landed_;
  uint32_t issued_ = 0;
};

// A computing warp's side of the ring.
class SlotReader {
 public:
  __device__ explicit SlotReader(StepMemory& memory) : memory_(&memory) {}

  // The slot that comes next, in shared memory.
  __device__ uint32_t Wait() const {
    WaitParity(SharedAddress(&memory_->full[place_.slot()]), place_.parity());
    return SharedAddress(memory_->slots[place_.slot()]);
  }
  // REQUIRES: all lanes call it, and have what they want of the slot in registers.
  __device__ void Release() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) Arrive(SharedAddress(&memory_->empty[place_.slot()]));
    place_.Advance();
  }

 private:
  StepMemory* memory_;
  RingPlace place_;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_WEIGHT_RING_CUH_
