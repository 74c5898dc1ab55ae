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

// A thread's packs of a matrix, one after the other: neighbours are neighbours', and the next is as
// far away as there are threads in all blocks. In 32 bits, and without a division between one pack
// and the next. REQUIRES: at most 2^24 rows (kMaxRows).
class PackWalk {
 public:
  // Of block `block` of `blocks`.
  __device__ PackWalk(uint32_t packs_per_row, uint32_t block, uint32_t blocks)
      : packs_per_row_(packs_per_row) {
    const uint32_t first = block * kRowComputeThreads + threadIdx.x;
    const uint32_t step = blocks * kRowComputeThreads;
    row_ = first / packs_per_row, pack_ = first - row_ * packs_per_row;
    step_rows_ = step / packs_per_row, step_packs_ = step - step_rows_ * packs_per_row;
  }
  __device__ uint32_t row() const { return row_; }
  __device__ uint32_t pack() const { return pack_; }  // among the row's
  __device__ void Next() {
    row_ += step_rows_, pack_ += step_packs_;
    if (pack_ >= packs_per_row_) pack_ -= packs_per_row_, ++row_;
  }

 private:
  uint32_t packs_per_row_, row_, pack_, step_rows_, step_packs_;
};

// As ForEachPack, kAtOnce packs at a time: load(row, column) is called for all of them before what
// it has given goes to use(row, column, loaded). What is on its way at once keeps memory busy.
template <int kWidth, int kAtOnce, typename Load, typename Use>
__device__ void ForPacksAtOnce(uint32_t rows, uint32_t columns, uint32_t block, uint32_t blocks,
                               const Load& load, const Use& use) {
  if constexpr (kAtOnce == 1) {
    return ForEachPack<kWidth>(rows, columns, block, blocks, [&](uint64_t row, uint64_t column) {
      use(row, column, load(row, column));
    });
  }
  PackWalk ahead(columns / kWidth, block, blocks), walk = ahead;
  while (walk.row() < rows) {
    decltype(load(uint64_t{}, uint64_t{})) loaded[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i, ahead.Next()) {
      if (ahead.row() < rows)
        loaded[i] = load(uint64_t{ahead.row()}, uint64_t{ahead.pack()} * kWidth);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i, walk.Next()) {
      if (walk.row() < rows) use(uint64_t{walk.row()}, uint64_t{walk.pack()} * kWidth, loaded[i]);
    }
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
