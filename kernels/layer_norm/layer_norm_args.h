// A layer norm with addresses, shared by host and device code.
#ifndef CONCERT_KERNELS_LAYER_NORM_LAYER_NORM_ARGS_H_
#define CONCERT_KERNELS_LAYER_NORM_LAYER_NORM_ARGS_H_

#include <cstdint>

#include "kernels/gemm/gemm_args.h"

namespace concert::kernels {

// As concert_layer_norm_body; residual and bias 0: none.
struct LayerNormArgs {
  uint32_t rows, columns;
  Address x, residual, weight, bias, out;
  uint64_t x_stride, residual_stride, out_stride;  // elements
  float epsilon;
  Dtype dtype;
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_LAYER_NORM_LAYER_NORM_ARGS_H_
