// Layer norm in the row kernel.
#ifndef CONCERT_KERNELS_LAYER_NORM_LAYER_NORM_CUH_
#define CONCERT_KERNELS_LAYER_NORM_LAYER_NORM_CUH_

#include "kernels/layer_norm/layer_norm_args.h"
#include "kernels/norm/norm_row.cuh"

namespace concert::kernels::cuda {

// Rows `block`, `block + blocks`, ... REQUIRES: kWidth divides columns and strides, and the
// operands are aligned to a pack.
template <typename T, int kWidth>
__device__ void LayerNorm(const LayerNormArgs& args, uint32_t block, uint32_t blocks) {
  const auto columns = static_cast<float>(args.columns);
  for (uint64_t row = block; row < args.rows; row += blocks) {
    float sum = 0, squares = 0;
    AddResidual<T, kWidth>(args, row, [&](uint32_t, const Pack<T, kWidth>& values) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum += ToFloat(values.values[i]);
    });
    const float mean = SumOverBlock(sum) / columns;
    // In a pass of its own: squares of what is far from 0 would leave nothing of the variance.
    ForNormInput<T, kWidth>(args, row, [&](uint32_t, const Pack<T, kWidth>& values) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float distance = ToFloat(values.values[i]) - mean;
        squares += distance * distance;
      }
    });
    const float scale = 1.0f / sqrtf(SumOverBlock(squares) / columns + args.epsilon);
    ForNormInput<T, kWidth>(args, row, [&](uint32_t column, Pack<T, kWidth> values) {
      const Pack<T, kWidth> weight = *PackAt<T, kWidth>(args.weight, column);
      Pack<T, kWidth> bias = {};
      if (args.bias != 0) bias = *PackAt<T, kWidth>(args.bias, column);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float normal = (ToFloat(values.values[i]) - mean) * scale;
        values.values[i] =
            FromFloat<T>(normal * ToFloat(weight.values[i]) + ToFloat(bias.values[i]));
      }
      *PackAt<T, kWidth>(args.out, row * args.out_stride + column) = values;
    });
  }
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_LAYER_NORM_LAYER_NORM_CUH_
