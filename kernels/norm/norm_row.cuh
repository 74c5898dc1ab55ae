// What norms in the row kernel have in common: a block takes a row, and a thread the same elements
// of it in every pass, so that what it has written to the residual is what it reads.
#ifndef CONCERT_KERNELS_NORM_NORM_ROW_CUH_
#define CONCERT_KERNELS_NORM_NORM_ROW_CUH_

#include "kernels/cuda_api/element.cuh"
#include "kernels/rows/row_threads.cuh"

namespace concert::kernels::cuda {

// each(column, values) for this thread's packs of the row that is normalised: of the residual, to
// which x has been added, if there is one, else of x.
template <typename T, int kWidth, typename Args, typename Each>
__device__ void ForNormInput(const Args& args, uint64_t row, const Each& each) {
  const bool has_residual = args.residual != 0;
  const Address input = has_residual ? args.residual : args.x;
  const uint64_t begin = row * (has_residual ? args.residual_stride : args.x_stride);
  for (uint32_t column = threadIdx.x * kWidth; column < args.columns;
       column += kRowComputeThreads * kWidth) {
    each(column, *PackAt<T, kWidth>(input, begin + column));
  }
}

// The same, and adds x to the residual on the way. For the first pass.
template <typename T, int kWidth, typename Args, typename Each>
__device__ void AddResidual(const Args& args, uint64_t row, const Each& each) {
  ForNormInput<T, kWidth>(args, row, [&](uint32_t column, Pack<T, kWidth> values) {
    if (args.residual != 0) {
      const Pack<T, kWidth> x = *PackAt<T, kWidth>(args.x, row * args.x_stride + column);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        values.values[i] = FromFloat<T>(ToFloat(x.values[i]) + ToFloat(values.values[i]));
      }
      *PackAt<T, kWidth>(args.residual, row * args.residual_stride + column) = values;
    }
    each(column, values);
  });
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_NORM_NORM_ROW_CUH_
