// A block's ring of slots in shared memory, through which weights and caches come: one warp fills
// it ahead of everything that the block waits for, since they depend on nothing.
#ifndef CONCERT_KERNELS_STEP_SLOT_RING_CUH_
#define CONCERT_KERNELS_STEP_SLOT_RING_CUH_

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

// The side of the warp that fills the ring.
class SlotWriter {
 public:
  // `in_flight`: slots that are on their way at once, at most: requests that queue for memory delay
  // who waits for other blocks.
  __device__ SlotWriter(StepMemory& memory, uint32_t in_flight)
      : memory_(memory), in_flight_(in_flight) {}

  // The slot that comes next, once it may be filled. REQUIRES: all lanes call it.
  __device__ char* Take() {
    WaitParity(SharedAddress(&memory_.empty[next_.slot()]), next_.parity() ^ 1);
    if (issued_ >= in_flight_) {
      WaitParity(SharedAddress(&memory_.full[landed_.slot()]), landed_.parity());
      landed_.Advance();
    }
    ++issued_;
    return memory_.slots[next_.slot()];
  }
  // Where kSlotArrivals arrive once the slot is full.
  __device__ uint32_t full() const { return SharedAddress(&memory_.full[next_.slot()]); }
  __device__ void Advance() { next_.Advance(); }

 private:
  StepMemory& memory_;
  const uint32_t in_flight_;
  RingPlace next_, landed_;
  uint32_t issued_ = 0;
};

// A computing warp's side.
class SlotReader {
 public:
  __device__ explicit SlotReader(StepMemory& memory) : memory_(&memory) {}

  // The slot that comes next, once it is full.
  __device__ char* Wait() const {
    WaitParity(SharedAddress(&memory_->full[place_.slot()]), place_.parity());
    return memory_->slots[place_.slot()];
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

__device__ __forceinline__ uint4 LoadShared(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_SLOT_RING_CUH_
