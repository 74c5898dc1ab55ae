// Gated activation in the row kernel.
#ifndef CONCERT_KERNELS_GATED_ACTIVATION_GATED_ACTIVATION_CUH_
#define CONCERT_KERNELS_GATED_ACTIVATION_GATED_ACTIVATION_CUH_

#include "kernels/activation.cuh"
#include "kernels/cuda_api/element.cuh"
#include "kernels/gated_activation/gated_activation_args.h"
#include "kernels/rows/row_threads.cuh"

namespace concert::kernels::cuda {

template <uint32_t kActivation, typename T, int kWidth>
__device__ void GatePacks(const GatedActivationArgs& args, uint32_t block, uint32_t blocks) {
  ForEachPack<kWidth>(args.rows, args.columns, block, blocks, [&](uint64_t row, uint64_t column) {
    // Both halves' elements: side by side, or alternately.
    const uint64_t first = row * args.x_stride + (args.interleaved ? 2 * column : column);
    const uint64_t second = args.interleaved ? first + kWidth : first + args.columns;
    const Pack<T, kWidth> in[2] = {*PackAt<T, kWidth>(args.x, first),
                                   *PackAt<T, kWidth>(args.x, second)};
    const auto at = [&](int k) { return ToFloat(in[k / kWidth].values[k % kWidth]); };
    Pack<T, kWidth> out;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float gate = args.interleaved ? at(2 * j) : at(j);
      const float up = args.interleaved ? at(2 * j + 1) : at(kWidth + j);
      out.values[j] = FromFloat<T>(Activate(gate, kActivation) * up);
    }
    *PackAt<T, kWidth>(args.out, row * args.out_stride + column) = out;
  });
}

// What falls to block `block` of `blocks`. REQUIRES: kWidth divides columns and strides, and the
// operands are aligned to a pack.
template <typename T, int kWidth>
__device__ void GatedActivation(const GatedActivationArgs& args, uint32_t block, uint32_t blocks) {
  WithActivation(static_cast<uint32_t>(args.activation), [&](auto activation) {
    GatePacks<decltype(activation)::value, T, kWidth>(args, block, blocks);
  });
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GATED_ACTIVATION_GATED_ACTIVATION_CUH_
