// The launch before a group launch some of whose operands no tensor map takes. One piece of 16
// bytes per thread: occupancy keeps enough bytes in flight, and the second read of each piece, the
// neighbour's first, hits the L1.
#include "kernels/group/repack.h"

namespace concert::kernels::cuda {

extern "C" __global__ void __launch_bounds__(kRepackThreads)
    concert_repack(const __grid_constant__ RepackArgs args) {
  Repack(args, blockIdx.x, threadIdx.x);
}

}  // namespace concert::kernels::cuda
