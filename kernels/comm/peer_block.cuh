// What blocks of peer kernels have in common: waits for peers that have a bound, and the rank's
// signal at the end.
#ifndef CONCERT_KERNELS_COMM_PEER_BLOCK_CUH_
#define CONCERT_KERNELS_COMM_PEER_BLOCK_CUH_

#include <cstdint>

#include "kernels/comm/peer_args.h"
#include "kernels/group/async.cuh"

namespace concert::kernels::cuda {

inline constexpr uint64_t kPatienceNs =
    10'000'000'000;  // a peer's kernel may wait for SMs until then

// Bounds a wait: asked now and then, ends the context when a rank has not come in time.
class Patience {
 public:
  __device__ Patience(const PeerArgs& args, uint32_t rank) : args_(args), rank_(rank) {}
  __device__ void Check() {
    if (++turns_ % kTurns != 0) return;
    const uint64_t now = NowNs();
    if (until_ == 0) until_ = now + kPatienceNs;
    if (now < until_) return;
    args_.report->block = blockIdx.x;
    args_.report->epoch = args_.epoch;
    args_.report->missing = 1 + rank_;
    __threadfence_system();
    __trap();
  }

 private:
  static constexpr uint32_t kTurns = 1024;  // so that waiting costs no look at the clock
  const PeerArgs& args_;
  const uint32_t rank_;
  uint32_t turns_ = 0;
  uint64_t until_ = 0;
};

// One thread of every block, when all that the block has stored happens before: the last of them
// writes the rank's signal. The kernel itself does, since a stream's write behind it begins when
// the grid is gone.
__device__ inline void EndBlock(const PeerArgs& args) {
  if (args.signal_address == 0) return;
  // Release, and by the last one acquire: what the blocks have stored.
  uint32_t& ended = args.exchange[args.rank]->ended;
  if (gridDim.x > 1) {
    if (AddAcquireRelease(&ended, 1) != gridDim.x - 1) return;
    ended = 0;  // the channel's next collective is behind this kernel
  }
  // Before: release of all that to the host, and to whoever is told by it.
  FenceSystem();
  StoreRelaxedSystem(args.signal_address, args.signal_value);
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_COMM_PEER_BLOCK_CUH_
