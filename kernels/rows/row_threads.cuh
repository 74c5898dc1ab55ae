// The computing threads of a row kernel's block, and how they share rows.
#ifndef CONCERT_KERNELS_ROWS_ROW_THREADS_CUH_
#define CONCERT_KERNELS_ROWS_ROW_THREADS_CUH_

#include "kernels/rows/row_args.h"

namespace concert::kernels::cuda {

// __syncthreads of those that compute. Barrier 0 is that of all threads.
__device__ __forceinline__ void SyncRowThreads() {
  asm volatile("bar.sync 1, %0;" ::"n"(kRowComputeThreads) : "memory");
}

// a / b, which takes a hundred instructions where one of them needs 64 bits.
__device__ __forceinline__ uint64_t Divide(uint64_t a, uint64_t b) {
  if (((a | b) >> 32) != 0) return a / b;
  return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
}

// each(row, column) for every pack of kWidth elements, of a matrix of that size, that falls to this
// thread of block `block` of `blocks`: neighbours to neighbours. REQUIRES: kWidth divides columns.
template <int kWidth, typename Each>
__device__ void ForEachPack(uint64_t rows, uint64_t columns, uint32_t block, uint32_t blocks,
                            const Each& each) {
  const uint64_t packs_per_row = columns / kWidth, packs = packs_per_row * rows;
  const uint64_t step = uint64_t{blocks} * kRowComputeThreads;
  for (uint64_t i = uint64_t{block} * kRowComputeThreads + threadIdx.x; i < packs; i += step) {
    const uint64_t row = Divide(i, packs_per_row);
    each(row, (i - row * packs_per_row) * kWidth);
  }
}

// `combine` of all threads' values, for all of them. May be called again at once.
template <typename T, typename Combine>
__device__ T CombineOverBlock(T value, const Combine& combine) {
  constexpr int kWarps = kRowComputeThreads / 32;
  __shared__ T values[kWarps];
  for (int offset = 16; offset > 0; offset /= 2) {
    value = combine(value, __shfl_xor_sync(~0u, value, offset));
  }
  if (threadIdx.x % 32 == 0) values[threadIdx.x / 32] = value;
  SyncRowThreads();
  value = values[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) value = combine(value, values[warp]);
  SyncRowThreads();
  return value;
}
__device__ inline float SumOverBlock(float value) {
  return CombineOverBlock(value, [](float a, float b) { return a + b; });
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ROWS_ROW_THREADS_CUH_
