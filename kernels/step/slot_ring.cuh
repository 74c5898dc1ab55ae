// A block's ring of slots in shared memory, through which weights and caches come: some warps fill
// it, slot by slot in turn, ahead of everything that the block waits for, since they depend on
// nothing.
#ifndef CONCERT_KERNELS_STEP_SLOT_RING_CUH_
#define CONCERT_KERNELS_STEP_SLOT_RING_CUH_

#include "kernels/group/async.cuh"
#include "kernels/step/step_shared.h"

namespace concert::kernels::cuda {

// A place in a ring of so many, which goes round.
template <int kPlaces>
class RingPlace {
 public:
  __device__ explicit RingPlace(int index = 0) : index_(index) {}
  __device__ int index() const { return index_; }
  __device__ uint32_t parity() const { return parity_; }
  __device__ void Advance(int places = 1) {
    index_ += places;
    if (index_ < kPlaces) return;
    index_ -= kPlaces;
    parity_ ^= 1;
  }

 private:
  int index_;
  uint32_t parity_ = 0;
};
using SlotPlace = RingPlace<kSlots>;

// The side of a warp that fills the ring: of kStepFeeders slots one. What the others fill it knows
// nothing of: it waits for barriers of its own slots alone, which cannot have gone round meanwhile.
class SlotWriter {
 public:
  // `in_flight`: the block's slots that are on their way at once, at most: requests that queue for
  // memory delay who waits for other blocks. The warps have equal parts of them, at least one each.
  __device__ SlotWriter(StepMemory& memory, uint32_t in_flight)
      : memory_(memory),
        in_flight_(max(in_flight / kStepFeeders, 1u)),
        hint_(CacheHint::ReadOnce()),
        until_own_(threadIdx.x / 32 % kStepFeeders),
        next_(until_own_),
        landed_(until_own_) {}

  // Whether this warp fills the slot that comes next; else it goes past it.
  __device__ bool IsNextOwn() const { return until_own_ == 0; }
  __device__ void Pass() { --until_own_; }

  // The slot that comes next, once it may be filled. `in_whole_slot`: so many like it would fill
  // one; as many of them may be on their way for each that is full. REQUIRES: all lanes call it.
  __device__ char* Take(uint32_t in_whole_slot = 1) {
    WaitParity(SharedAddress(&memory_.empty[next_.index()]), next_.parity() ^ 1);
    // No more than it has: each is looked at before it is filled again.
    const uint32_t most = min(in_flight_ * in_whole_slot, uint32_t{kSlots / kStepFeeders});
#pragma unroll 1
    for (; issued_ >= most; --issued_) {
      WaitParity(SharedAddress(&memory_.full[landed_.index()]), landed_.parity());
      landed_.Advance(kStepFeeders);
    }
    ++issued_;
    return memory_.slots[next_.index()];
  }
  // Of what comes through the ring: the L2 cache is for what comes again, tables, results that
  // blocks exchange, the kernel's code.
  __device__ CacheHint hint() const { return hint_; }
  // Where kSlotArrivals arrive once the slot is full.
  __device__ uint32_t full() const { return SharedAddress(&memory_.full[next_.index()]); }
  __device__ void Advance() {
    next_.Advance(kStepFeeders);
    until_own_ = kStepFeeders - 1;
  }

 private:
  StepMemory& memory_;
  const uint32_t in_flight_;
  const CacheHint hint_;
  uint32_t until_own_;  // slots
  SlotPlace next_, landed_;
  uint32_t issued_ = 0;  // and not known to have landed
};

// A computing warp's side.
class SlotReader {
 public:
  __device__ explicit SlotReader(StepMemory& memory) : memory_(&memory) {}

  // The slot that comes next, or the one so many behind it, once it is full.
  __device__ char* Wait(uint32_t ahead = 0) const {
    const SlotPlace place = Place(ahead);
    WaitParity(SharedAddress(&memory_->full[place.index()]), place.parity());
    return memory_->slots[place.index()];
  }
  // Of so many slots. REQUIRES: all lanes call it, and what they wanted of them has been used, not
  // only asked for: an arrival does not order loads with the next tensor copy, which is of another
  // proxy and overtook some that were on their way (one H200, 32 rows: in each run some units had
  // weights of later ones). They have waited for the last kStepFeeders of them: then whoever fills
  // the others has seen that nobody reads what was there before.
  __device__ void Release(uint32_t slots) {
    __syncwarp();
    if (const uint32_t lane = threadIdx.x % 32; lane < slots)
      Arrive(SharedAddress(&memory_->empty[Place(lane).index()]));
    place_.Advance(static_cast<int>(slots));
  }

 private:
  __device__ SlotPlace Place(uint32_t ahead) const {
    SlotPlace place = place_;
    place.Advance(static_cast<int>(ahead));
    return place;
  }

  StepMemory* memory_;
  SlotPlace place_;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_SLOT_RING_CUH_
