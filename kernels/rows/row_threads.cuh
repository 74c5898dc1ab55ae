// The computing threads of a row kernel's block.
#ifndef CONCERT_KERNELS_ROWS_ROW_THREADS_CUH_
#define CONCERT_KERNELS_ROWS_ROW_THREADS_CUH_

#include "kernels/rows/row_args.h"

namespace concert::kernels::cuda {

// __syncthreads of those that compute. Barrier 0 is that of all threads.
__device__ __forceinline__ void SyncRowThreads() {
  asm volatile("bar.sync 1, %0;" ::"n"(kRowComputeThreads) : "memory");
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ROWS_ROW_THREADS_CUH_
