// Argmax in the row kernel: a block takes one row after the other.
#ifndef CONCERT_KERNELS_ARGMAX_ARGMAX_CUH_
#define CONCERT_KERNELS_ARGMAX_ARGMAX_CUH_

#include "kernels/argmax/argmax_args.h"
#include "kernels/cuda_api/element.cuh"
#include "kernels/rows/row_threads.cuh"

namespace concert::kernels::cuda {

// A number and where it stands, such that what comes out on top is the larger: the value's bits in
// the order of values, NaN above all and -0 equal to 0, then the place, the first above the others.
__device__ inline unsigned long long RankOf(float value, uint32_t place) {
  uint32_t bits = __float_as_uint(value == 0 ? 0 : value);
  bits = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  if (value != value) bits = ~0u;
  return static_cast<unsigned long long>(bits) << 32 | (~0u - place);
}

// Rows `block`, `block` + `blocks`, ... REQUIRES: kWidth divides columns and the stride, and x is
// aligned to a pack.
template <typename T, int kWidth>
__device__ void Argmax(const ArgmaxArgs& args, uint32_t block, uint32_t blocks) {
  for (uint64_t row = block; row < args.rows; row += blocks) {
    float largest = -INFINITY;
    unsigned long long top = RankOf(largest, 0);  // the least that element 0 can have
    // A vocabulary is long and its rows are few: several loads of a thread must be on their way.
#pragma unroll 4
    for (uint32_t column = threadIdx.x * kWidth; column < args.columns;
         column += kRowComputeThreads * kWidth) {
      const Pack<T, kWidth> values = *PackAt<T, kWidth>(args.x, row * args.x_stride + column);
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
    top = CombineOverBlock(
        top, [](unsigned long long a, unsigned long long b) { return a < b ? b : a; });
    if (threadIdx.x == 0) {
      StoreIndex(args.indices, row, args.index_type, ~0u - static_cast<uint32_t>(top));
    }
  }
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ARGMAX_ARGMAX_CUH_
