// Where a block's warps leave sums for each other.
#ifndef CONCERT_KERNELS_STEP_SCRATCH_TURN_CUH_
#define CONCERT_KERNELS_STEP_SCRATCH_TURN_CUH_

#include "kernels/rows/row_threads.cuh"
#include "kernels/step/step_shared.h"

namespace concert::kernels::cuda {

// Passes have the scratch in turn: half of it each where that is enough, so that a warp that has
// nothing to finish need not wait for those that still read what the pass before left. Every pass
// has a barrier between what it leaves and who reads it; whoever comes to one has read what the
// pass before left, so that the next but one may overwrite it.
class ScratchTurn {
 public:
  __device__ explicit ScratchTurn(char* scratch) : scratch_(scratch) {}

  // So many bytes for the next pass. REQUIRES: all computing threads call it, with the same.
  __device__ char* Take(uint32_t bytes) {
    const bool whole = bytes > kHalf;
    if (whole || was_whole_) SyncRowThreads();
    was_whole_ = whole;
    turn_ ^= 1;
    return scratch_ + (whole ? 0 : turn_ * kHalf);
  }
  // Of the last that took: 0 or 1, in turn.
  __device__ uint32_t turn() const { return turn_; }

  // Which of the threads that finish a pass this one is. Warps have that in turn, too: while some
  // finish, the others, who will finish the next pass, are at the next stage.
  __device__ uint32_t Finisher() const { return (threadIdx.x - finished_) % kStepComputeThreads; }
  // So many threads have finished the pass.
  __device__ void HaveFinished(uint32_t threads) { finished_ += threads; }

 private:
  static constexpr uint32_t kHalf = kStepScratchBytes / 2;

  char* const scratch_;
  uint32_t turn_ = 0;
  uint32_t finished_ = 0;  // threads, of all passes
  bool was_whole_ = false;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_SCRATCH_TURN_CUH_
