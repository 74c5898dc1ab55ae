// RMS norm in the row kernel: a block takes one row after the other. A thread reads the same
// elements in both passes, so that what it has written to the residual is what it reads.
#ifndef CONCERT_KERNELS_RMS_NORM_RMS_NORM_CUH_
#define CONCERT_KERNELS_RMS_NORM_RMS_NORM_CUH_

#include "kernels/cuda_api/element.cuh"
#include "kernels/rms_norm/rms_norm_args.h"
#include "kernels/rows/row_threads.cuh"

namespace concert::kernels::cuda {

// Adds x to the residual, if there is one. This thread's part of the sum of squares of what is
// normalised.
template <typename T, int kWidth>
__device__ float SquaresOfRow(const RmsNormArgs& args, uint64_t row) {
  float squares = 0;
  for (uint32_t column = threadIdx.x * kWidth; column < args.columns;
       column += kRowComputeThreads * kWidth) {
    Pack<T, kWidth> values = *PackAt<T, kWidth>(args.x, row * args.x_stride + column);
    if (args.residual != 0) {
      auto* residual = PackAt<T, kWidth>(args.residual, row * args.residual_stride + column);
      Pack<T, kWidth> sums = *residual;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        sums.values[i] = FromFloat<T>(ToFloat(values.values[i]) + ToFloat(sums.values[i]));
      }
      *residual = values = sums;
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float value = ToFloat(values.values[i]);
      squares += value * value;
    }
  }
  return squares;
}

// Rows `block`, `block + blocks`, ... REQUIRES: kWidth divides columns and strides, and the
// operands are aligned to a pack.
template <typename T, int kWidth>
__device__ void RmsNorm(const RmsNormArgs& args, uint32_t block, uint32_t blocks) {
  for (uint64_t row = block; row < args.rows; row += blocks) {
    const float squares = SumOverBlock(SquaresOfRow<T, kWidth>(args, row));
    const float scale = 1.0f / sqrtf(squares / static_cast<float>(args.columns) + args.epsilon);
    const bool has_residual = args.residual != 0;
    const Address input = has_residual ? args.residual : args.x;
    const uint64_t input_row = row * (has_residual ? args.residual_stride : args.x_stride);
    for (uint32_t column = threadIdx.x * kWidth; column < args.columns;
         column += kRowComputeThreads * kWidth) {
      Pack<T, kWidth> values = *PackAt<T, kWidth>(input, input_row + column);
      const Pack<T, kWidth> weight = *PackAt<T, kWidth>(args.weight, column);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        float normal = ToFloat(values.values[i]) * scale;
        if (args.cast_first) normal = ToFloat(FromFloat<T>(normal));
        values.values[i] = FromFloat<T>(normal * ToFloat(weight.values[i]));
      }
      *PackAt<T, kWidth>(args.out, row * args.out_stride + column) = values;
    }
  }
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_RMS_NORM_RMS_NORM_CUH_
