// Gated activation in the row kernel: a thread takes one pack of neighbouring elements of out after
// the other.
#ifndef CONCERT_KERNELS_GATED_ACTIVATION_GATED_ACTIVATION_CUH_
#define CONCERT_KERNELS_GATED_ACTIVATION_GATED_ACTIVATION_CUH_

#include "kernels/activation.cuh"
#include "kernels/cuda_api/element.cuh"
#include "kernels/gated_activation/gated_activation_args.h"
#include "kernels/rows/row_args.h"

namespace concert::kernels::cuda {

// What falls to block `block` of `blocks`. REQUIRES: kWidth divides columns and strides, and the
// operands are aligned to a pack.
template <typename T, int kWidth>
__device__ void GatedActivation(const GatedActivationKernelArgs& args, uint32_t block,
                                uint32_t blocks) {
  const uint64_t packs_per_row = args.columns / kWidth, packs = packs_per_row * args.rows;
  const uint64_t step = uint64_t{blocks} * kRowComputeThreads;
  for (uint64_t i = uint64_t{block} * kRowComputeThreads + threadIdx.x; i < packs; i += step) {
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

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GATED_ACTIVATION_GATED_ACTIVATION_CUH_
