// The bound of a wait for other blocks.
#ifndef CONCERT_KERNELS_STEP_PATIENCE_CUH_
#define CONCERT_KERNELS_STEP_PATIENCE_CUH_

#include "kernels/group/async.cuh"
#include "kernels/step/step_args.h"

namespace concert::kernels::cuda {

// A launch whose blocks are all there ends its stages in microseconds.
inline constexpr uint64_t kPatienceNs = 5'000'000'000;

// Asked in every turn of a wait. Rather a wrong result, which is reported, than a GPU that hangs.
// Nothing of it has an address: it would be in local memory, of which the L1 cache holds next to
// none beside so much shared memory.
class Patience {
 public:
  __device__ bool GivesUp(const StepArgs& args) {
    constexpr uint32_t kTurnsPerLook = 4096;  // at the clock
    if (++turns_ % kTurnsPerLook != 0) return false;
    until_ = Look(args, until_);
    return until_ == kOver;
  }

 private:
  static constexpr uint64_t kOver = ~uint64_t{0};

  static __device__ __noinline__ uint64_t Look(const StepArgs& args, uint64_t until) {
    const uint64_t now = NowNs();
    if (until == 0) return now + kPatienceNs;
    if (now < until) return until;
    args.report->block = blockIdx.x;
    args.report->missing = 1;
    return kOver;
  }

  uint32_t turns_ = 0;
  uint64_t until_ = 0;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_PATIENCE_CUH_
