// Addition, multiplication or a cast with addresses, shared by host and device code.
#ifndef CONCERT_KERNELS_ELEMENTWISE_ELEMENTWISE_ARGS_H_
#define CONCERT_KERNELS_ELEMENTWISE_ELEMENTWISE_ARGS_H_

#include <cstdint>

#include "kernels/gemm/gemm_args.h"
#include "kernels/indices.h"

namespace concert::kernels {

enum class ElementFunction : uint8_t { kAdd = 1, kMultiply = 2, kCast = 3 };

// As concert_elementwise_body; y 0: none.
struct ElementwiseArgs {
  uint32_t rows, columns;
  Address x, y, out;
  uint64_t x_stride, y_stride, out_stride;  // elements
  ElementFunction function;
  Dtype dtype, out_dtype;
};

// y is whatever without one.
CONCERT_ON_BOTH_SIDES inline float Apply(ElementFunction function, float x, float y) {
  switch (function) {
    case ElementFunction::kAdd:
      return x + y;
    case ElementFunction::kMultiply:
      return x * y;
    default:
      return x;
  }
}

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_ELEMENTWISE_ELEMENTWISE_ARGS_H_
