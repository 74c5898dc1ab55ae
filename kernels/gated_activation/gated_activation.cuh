// Gated activation in the row kernel.
#ifndef CONCERT_KERNELS_GATED_ACTIVATION_GATED_ACTIVATION_CUH_
#define CONCERT_KERNELS_GATED_ACTIVATION_GATED_ACTIVATION_CUH_

#include "kernels/activation.cuh"
#include "kernels/cuda_api/element.cuh"
#include "kernels/gated_activation/gated_activation_args.h"
#include "kernels/rows/row_threads.cuh"

namespace concert::kernels::cuda {

// What a pack of results is made of: gates and what they gate.
template <typename T, int kWidth>
struct GatedPacks {
  Pack<T, kWidth> gate, up;

  // Of packs in which they alternate.
  __device__ void PutApart() {
    const auto at = [first = gate, second = up](int i) {
      return i < kWidth ? first.values[i % kWidth] : second.values[i % kWidth];
    };
#pragma unroll
    for (int i = 0; i < kWidth; ++i) gate.values[i] = at(2 * i), up.values[i] = at(2 * i + 1);
  }
};

template <uint32_t kActivation, typename T, int kWidth, int kAtOnce>
__device__ void GatePacks(const GatedActivationArgs& args, uint32_t block, uint32_t blocks) {
  const bool interleaved = args.interleaved;
  const auto load = [&](uint64_t row, uint64_t column) {
    const uint64_t first = row * args.x_stride + (interleaved ? 2 * column : column);
    const uint64_t second = interleaved ? first + kWidth : first + args.columns;
    return GatedPacks<T, kWidth>{*PackAt<T, kWidth>(args.x, first),
                                 *PackAt<T, kWidth>(args.x, second)};
  };
  const auto store = [&](uint64_t row, uint64_t column, GatedPacks<T, kWidth> packs) {
    if (interleaved) packs.PutApart();
    Pack<T, kWidth> out;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float gate = ToFloat(packs.gate.values[i]), up = ToFloat(packs.up.values[i]);
      out.values[i] = FromFloat<T>(Activate(gate, kActivation) * up);
    }
    *PackAt<T, kWidth>(args.out, row * args.out_stride + column) = out;
  };
  ForPacksAtOnce<kWidth, kAtOnce>(args.rows, args.columns, block, blocks, load, store);
}

// What falls to block `block` of `blocks`, kAtOnce packs at a time. REQUIRES: kWidth divides
// columns and strides, and the operands are aligned to a pack.
template <typename T, int kWidth, int kAtOnce>
__device__ void GatedActivation(const GatedActivationArgs& args, uint32_t block, uint32_t blocks) {
  WithActivation(static_cast<uint32_t>(args.activation), [&](auto activation) {
    GatePacks<decltype(activation)::value, T, kWidth, kAtOnce>(args, block, blocks);
  });
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GATED_ACTIVATION_GATED_ACTIVATION_CUH_
