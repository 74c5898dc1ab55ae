// Argmax in the row kernel: a block takes one row after the other.
#ifndef CONCERT_KERNELS_ARGMAX_ARGMAX_CUH_
#define CONCERT_KERNELS_ARGMAX_ARGMAX_CUH_

#include "kernels/argmax/argmax_args.h"
#include "kernels/cuda_api/element.cuh"
#include "kernels/float_order.h"
#include "kernels/rows/row_threads.cuh"

namespace concert::kernels::cuda {

// A number and where it stands, such that what comes out on top is the larger: the value's order,
// then the place, the first above the others.
__device__ inline unsigned long long RankOf(float value, uint32_t place) {
  return static_cast<unsigned long long>(OrderOf(value)) << 32 | (~0u - place);
}
__device__ inline uint32_t PlaceOf(unsigned long long rank) {
  return ~0u - static_cast<uint32_t>(rank);
}

// The highest rank of the `columns` elements from element `begin` of x on. For all threads.
// REQUIRES: kWidth divides columns and begin, and x is aligned to a pack.
template <typename T, int kWidth>
__device__ unsigned long long HighestRank(Address x, uint64_t begin, uint32_t columns) {
  float largest = -INFINITY;
  unsigned long long top = RankOf(largest, 0);  // the least that element 0 can have
  // A vocabulary is long and its rows are few: several loads of a thread must be on their way.
#pragma unroll 4
  for (uint32_t column = threadIdx.x * kWidth; column < columns;
       column += kRowComputeThreads * kWidth) {
    const Pack<T, kWidth> values = *PackAt<T, kWidth>(x, begin + column);
    bool larger = false;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) larger |= !(ToFloat(values.values[i]) <= largest);
    if (!larger) continue;  // mostly
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const unsigned long long rank = RankOf(ToFloat(values.values[i]), column + i);
      if (rank <= top) continue;
      top = rank;
      largest = ToFloat(values.values[i]);
    }
  }
  return CombineOverBlock(top,
                          [](unsigned long long a, unsigned long long b) { return a < b ? b : a; });
}

// Rows `block`, `block` + `blocks`, ... REQUIRES: kWidth divides columns and the stride, and x is
// aligned to a pack.
template <typename T, int kWidth>
__device__ void Argmax(const ArgmaxArgs& args, uint32_t block, uint32_t blocks) {
  for (uint64_t row = block; row < args.rows; row += blocks) {
    const unsigned long long top =
        HighestRank<T, kWidth>(args.x, row * args.x_stride, args.columns);
    if (threadIdx.x == 0) StoreIndex(args.indices, row, args.index_type, PlaceOf(top));
  }
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ARGMAX_ARGMAX_CUH_
