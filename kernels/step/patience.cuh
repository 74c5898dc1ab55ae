// The bound of a wait for other blocks.
#ifndef CONCERT_KERNELS_STEP_PATIENCE_CUH_
#define CONCERT_KERNELS_STEP_PATIENCE_CUH_

#include "kernels/group/async.cuh"
#include "kernels/step/step_args.h"
#include "kernels/step/step_shared.h"

namespace concert::kernels::cuda {

// A launch whose blocks are all there ends its stages in microseconds.
inline constexpr uint64_t kPatienceNs = 5'000'000'000;

__device__ inline StepMemory& MemoryOfBlock() {
  extern __shared__ __align__(128) char shared[];
  return *reinterpret_cast<StepMemory*>(shared);
}

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
    // What one block waits for in vain, others do: all of them give up with the first.
    if (LoadRelaxedSystem(AddressOf(args.report->stalled)) != args.launch) {
      if (until == 0) return now + kPatienceNs;
      if (now < until) return until;
      Report(args);
    }
    AwaitAnswer(args, now + kPatienceNs);
    return kOver;
  }

  static __device__ Address AddressOf(const uint64_t& word) {
    return reinterpret_cast<Address>(&word);
  }

  static __device__ void Report(const StepArgs& args) {
    const auto at = *const_cast<const volatile uint32_t*>(&MemoryOfBlock().at);
    args.report->run = {args.session, args.queue, args.ticket, at, blockIdx.x};
    // Release: pairs with StepReports::Take.
    FenceSystem();
    StoreRelaxedSystem(AddressOf(args.report->stalled), args.launch);
  }

  // Whoever sees the run's end is to know by then that it failed. The host looks every few
  // milliseconds; if it does not answer, nobody else is made to wait for ever.
  static __device__ void AwaitAnswer(const StepArgs& args, uint64_t until) {
    while (LoadRelaxedSystem(AddressOf(args.report->answered)) != args.launch && NowNs() < until)
      __nanosleep(100'000);
  }

  uint32_t turns_ = 0;
  uint64_t until_ = 0;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_PATIENCE_CUH_
