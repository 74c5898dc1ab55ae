// RMS norm: a block for each row. A thread reads the same elements in both passes, so that what it
// has written to the residual is what it reads.
#include "kernels/cuda_api/element.cuh"
#include "kernels/rms_norm/rms_norm_args.h"

namespace concert::kernels::cuda {
namespace {

constexpr int kWarps = kRmsNormThreads / 32;

// The sum over all threads of the block. May be called again at once.
__device__ float SumOverBlock(float value) {
  __shared__ float sums[kWarps];
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) value += sums[warp];
  __syncthreads();
  return value;
}

template <typename T, int kWidth>
__device__ Pack<T, kWidth>* PackAt(void* matrix, uint64_t offset) {
  return reinterpret_cast<Pack<T, kWidth>*>(static_cast<T*>(matrix) + offset);
}
template <typename T, int kWidth>
__device__ const Pack<T, kWidth>* PackAt(const void* matrix, uint64_t offset) {
  return reinterpret_cast<const Pack<T, kWidth>*>(static_cast<const T*>(matrix) + offset);
}

// Adds x to the residual, if there is one. This thread's part of the sum of squares of what is
// normalised.
template <typename T, int kWidth>
__device__ float SquaresOfRow(const RmsNormKernelArgs& args, uint64_t row) {
  float squares = 0;
  for (uint32_t column = threadIdx.x * kWidth; column < args.columns;
       column += kRmsNormThreads * kWidth) {
    Pack<T, kWidth> values = *PackAt<T, kWidth>(args.x, row * args.x_stride + column);
    if (args.residual != nullptr) {
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

// REQUIRES: kWidth divides columns and strides, and the operands are aligned to a pack.
template <typename T, int kWidth>
__device__ void RmsNorm(const RmsNormKernelArgs& args) {
  for (uint64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const float squares = SumOverBlock(SquaresOfRow<T, kWidth>(args, row));
    const float scale = 1.0f / sqrtf(squares / static_cast<float>(args.columns) + args.epsilon);
    const bool has_residual = args.residual != nullptr;
    const void* input = has_residual ? args.residual : args.x;
    const uint64_t input_row = row * (has_residual ? args.residual_stride : args.x_stride);
    for (uint32_t column = threadIdx.x * kWidth; column < args.columns;
         column += kRmsNormThreads * kWidth) {
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

}  // namespace

#define CONCERT_RMS_NORM(name, T, width)                        \
  extern "C" __global__ void __launch_bounds__(kRmsNormThreads) \
      name(const RmsNormKernelArgs args) {                      \
    RmsNorm<T, width>(args);                                    \
  }
CONCERT_RMS_NORM(rms_norm_bf16_scalar, __nv_bfloat16, 1)
CONCERT_RMS_NORM(rms_norm_bf16_vector, __nv_bfloat16, 8)
CONCERT_RMS_NORM(rms_norm_fp16_scalar, __half, 1)
CONCERT_RMS_NORM(rms_norm_fp16_vector, __half, 8)
CONCERT_RMS_NORM(rms_norm_fp32_scalar, float, 1)
CONCERT_RMS_NORM(rms_norm_fp32_vector, float, 4)

}  // namespace concert::kernels::cuda
