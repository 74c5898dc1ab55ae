// RMS norm in the row kernel.
#ifndef CONCERT_KERNELS_RMS_NORM_RMS_NORM_CUH_
#define CONCERT_KERNELS_RMS_NORM_RMS_NORM_CUH_

#include "kernels/norm/norm_row.cuh"
#include "kernels/rms_norm/rms_norm_args.h"

namespace concert::kernels::cuda {

// Rows `block`, `block + blocks`, ... REQUIRES: kWidth divides columns and strides, and the
// operands are aligned to a pack.
template <typename T, int kWidth>
__device__ void RmsNorm(const RmsNormArgs& args, uint32_t block, uint32_t blocks) {
  for (uint64_t row = block; row < args.rows; row += blocks) {
    float squares = 0;
    AddResidual<T, kWidth>(args, row, [&](uint32_t, const Pack<T, kWidth>& values) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        squares += ToFloat(values.values[i]) * ToFloat(values.values[i]);
    });
    squares = SumOverBlock(squares);
    const float scale = 1.0f / sqrtf(squares / static_cast<float>(args.columns) + args.epsilon);
    ForNormInput<T, kWidth>(args, row, [&](uint32_t column, Pack<T, kWidth> values) {
      const Pack<T, kWidth> weight = *PackAt<T, kWidth>(args.weight, column);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        float normal = ToFloat(values.values[i]) * scale;
        if (args.cast_first) normal = ToFloat(FromFloat<T>(normal));
        values.values[i] = FromFloat<T>(normal * ToFloat(weight.values[i]));
      }
      *PackAt<T, kWidth>(args.out, row * args.out_stride + column) = values;
    });
  }
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_RMS_NORM_RMS_NORM_CUH_
