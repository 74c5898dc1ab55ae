// Gated activation: a thread for each pack of neighbouring elements of out.
#include "kernels/activation.cuh"
#include "kernels/cuda_api/element.cuh"
#include "kernels/gated_activation/gated_activation_args.h"

namespace concert::kernels::cuda {
namespace {

// REQUIRES: kWidth divides columns and strides, and the operands are aligned to a pack.
template <typename T, int kWidth>
__device__ void GatedActivation(const GatedActivationKernelArgs& args) {
  const uint64_t packs_per_row = args.columns / kWidth, packs = packs_per_row * args.rows;
  const uint64_t step = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < packs; i += step) {
    const uint64_t row = i / packs_per_row, column = (i - row * packs_per_row) * kWidth;
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    // Both halves' elements: side by side, or alternately.
    const T* first = x + (args.interleaved ? 2 * column : column);
    const T* second = args.interleaved ? first + kWidth : first + args.columns;
    const Pack<T, kWidth> in[2] = {*reinterpret_cast<const Pack<T, kWidth>*>(first),
                                   *reinterpret_cast<const Pack<T, kWidth>*>(second)};
    const auto at = [&](int k) { return ToFloat(in[k / kWidth].values[k % kWidth]); };
    Pack<T, kWidth> out;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float gate = args.interleaved ? at(2 * j) : at(j);
      const float up = args.interleaved ? at(2 * j + 1) : at(kWidth + j);
      out.values[j] = FromFloat<T>(Activate(gate, args.activation) * up);
    }
    *reinterpret_cast<Pack<T, kWidth>*>(static_cast<T*>(args.out) + row * args.out_stride +
                                        column) = out;
  }
}

}  // namespace

#define CONCERT_GATED_ACTIVATION(name, T, width)                        \
  extern "C" __global__ void __launch_bounds__(kGatedActivationThreads) \
      name(const GatedActivationKernelArgs args) {                      \
    GatedActivation<T, width>(args);                                    \
  }
CONCERT_GATED_ACTIVATION(gated_activation_bf16_scalar, __nv_bfloat16, 1)
CONCERT_GATED_ACTIVATION(gated_activation_bf16_vector, __nv_bfloat16, 8)
CONCERT_GATED_ACTIVATION(gated_activation_fp16_scalar, __half, 1)
CONCERT_GATED_ACTIVATION(gated_activation_fp16_vector, __half, 8)
CONCERT_GATED_ACTIVATION(gated_activation_fp32_scalar, float, 1)
CONCERT_GATED_ACTIVATION(gated_activation_fp32_vector, float, 4)

}  // namespace concert::kernels::cuda
