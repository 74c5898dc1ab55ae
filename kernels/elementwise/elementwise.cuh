// Addition, multiplication and casts in the row kernel.
#ifndef CONCERT_KERNELS_ELEMENTWISE_ELEMENTWISE_CUH_
#define CONCERT_KERNELS_ELEMENTWISE_ELEMENTWISE_CUH_

#include "kernels/cuda_api/element.cuh"
#include "kernels/elementwise/elementwise_args.h"
#include "kernels/rows/row_threads.cuh"

namespace concert::kernels::cuda {

template <typename Out, int kWidth>
__device__ void StoreAs(Address out, uint64_t offset, const float (&values)[kWidth]) {
  Pack<Out, kWidth> pack;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) pack.values[i] = FromFloat<Out>(values[i]);
  *PackAt<Out, kWidth>(out, offset) = pack;
}

// What falls to block `block` of `blocks`. REQUIRES: kWidth divides columns and strides, and
// operands are aligned to a pack of theirs.
template <typename T, int kWidth>
__device__ void Elementwise(const ElementwiseArgs& args, uint32_t block, uint32_t blocks) {
  ForEachPack<kWidth>(args.rows, args.columns, block, blocks, [&](uint64_t row, uint64_t column) {
    const Pack<T, kWidth> x = *PackAt<T, kWidth>(args.x, row * args.x_stride + column);
    Pack<T, kWidth> y = x;
    if (args.y != 0) y = *PackAt<T, kWidth>(args.y, row * args.y_stride + column);
    float values[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      values[i] = Apply(args.function, ToFloat(x.values[i]), ToFloat(y.values[i]));
    }
    const uint64_t offset = row * args.out_stride + column;
    switch (args.out_dtype) {
      case Dtype::kBf16:
        return StoreAs<__nv_bfloat16>(args.out, offset, values);
      case Dtype::kFp16:
        return StoreAs<__half>(args.out, offset, values);
      default:
        return StoreAs<float>(args.out, offset, values);
    }
  });
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ELEMENTWISE_ELEMENTWISE_CUH_
