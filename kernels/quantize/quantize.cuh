// Quantisation in the row kernel: a block takes one row after the other, each in two passes.
#ifndef CONCERT_KERNELS_QUANTIZE_QUANTIZE_CUH_
#define CONCERT_KERNELS_QUANTIZE_QUANTIZE_CUH_

#include "kernels/cuda_api/element.cuh"
#include "kernels/quantize/quantize_args.h"
#include "kernels/rows/row_threads.cuh"

namespace concert::kernels::cuda {

// Rows `block`, `block` + `blocks`, ... REQUIRES: kWidth divides columns and strides, and x and out
// are aligned to a pack of theirs.
template <typename T, int kWidth>
__device__ void Quantize(const QuantizeArgs& args, uint32_t block, uint32_t blocks) {
  constexpr uint32_t kStep = kRowComputeThreads * kWidth;
  for (uint64_t row = block; row < args.rows; row += blocks) {
    uint32_t largest = 0;
    for (uint32_t column = threadIdx.x * kWidth; column < args.columns; column += kStep) {
      const Pack<T, kWidth> x = *PackAt<T, kWidth>(args.x, row * args.x_stride + column);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) largest = max(largest, MagnitudeOf(ToFloat(x.values[i])));
    }
    largest = CombineOverBlock(largest, [](uint32_t a, uint32_t b) { return max(a, b); });
    const float scale = ScaleOf(largest);
    if (threadIdx.x == 0) reinterpret_cast<float*>(args.scales)[row] = scale;
    for (uint32_t column = threadIdx.x * kWidth; column < args.columns; column += kStep) {
      const Pack<T, kWidth> x = *PackAt<T, kWidth>(args.x, row * args.x_stride + column);
      Pack<uint8_t, kWidth> out;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) out.values[i] = E4m3Of(ToFloat(x.values[i]) / scale);
      *PackAt<uint8_t, kWidth>(args.out, row * args.out_stride + column) = out;
    }
  }
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_QUANTIZE_QUANTIZE_CUH_
