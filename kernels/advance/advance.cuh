// Advance in the row kernel: a thread takes a counter.
#ifndef CONCERT_KERNELS_ADVANCE_ADVANCE_CUH_
#define CONCERT_KERNELS_ADVANCE_ADVANCE_CUH_

#include "kernels/advance/advance_args.h"
#include "kernels/rows/row_threads.cuh"

namespace concert::kernels::cuda {

// What falls to block `block` of `blocks`.
__device__ inline void Advance(const AdvanceArgs& args, uint32_t block, uint32_t blocks) {
  ForEachPack<1>(args.rows, 1, block, blocks,
                 [&](uint64_t row, uint64_t) { AdvanceCounter(args, row); });
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ADVANCE_ADVANCE_CUH_
