// The bound of a wait for other blocks, and what becomes of a launch that has come to it.
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
  __device__ bool GivesUp() {
    constexpr uint32_t kTurnsPerLook = 4096;  // at the clock
    if (++turns_ % kTurnsPerLook != 0) return false;
    until_ = Look(until_);
    return until_ == kOver;
  }

 private:
  static constexpr uint64_t kOver = ~uint64_t{0};

  // Whoever waits must save what it has in registers that this may use. So it says no more than
  // where: with a report to the host from here, steps of up to 8 rows took 17 % longer (one H100).
  static __device__ __noinline__ uint64_t Look(uint64_t until) {
    auto& memory = const_cast<volatile StepMemory&>(MemoryOfBlock());
    if (memory.stalled_at != StepMemory::kNowhere) return kOver;
    const uint64_t now = NowNs();
    if (until == 0) return now + kPatienceNs;
    if (now < until) return until;
    memory.stalled_at = memory.at_work;
    return kOver;
  }

  uint32_t turns_ = 0;
  uint64_t until_ = 0;
};

// By one thread, at the end of a block that has given up: whoever sees the run's end is to know by
// then that it failed. The host looks every few milliseconds; if it does not answer, nobody else is
// made to wait for ever.
__device__ __noinline__ void TellOfStall(const StepArgs& args, uint32_t stage) {
  StepReport& report = *args.report;
  const auto address_of = [](const uint64_t& word) { return reinterpret_cast<Address>(&word); };
  report.run = {args.session, args.queue, args.ticket, stage, blockIdx.x};
  // Release: pairs with StepReports::Take.
  FenceSystem();
  StoreRelaxedSystem(address_of(report.stalled), args.launch);
  const uint64_t until = NowNs() + kPatienceNs;
  while (LoadRelaxedSystem(address_of(report.answered)) != args.launch && NowNs() < until)
    __nanosleep(100'000);
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_PATIENCE_CUH_
