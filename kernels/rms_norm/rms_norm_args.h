// An RMS norm with addresses, shared by host and device code.
#ifndef CONCERT_KERNELS_RMS_NORM_RMS_NORM_ARGS_H_
#define CONCERT_KERNELS_RMS_NORM_RMS_NORM_ARGS_H_

#include <cstdint>

#include "kernels/gemm/gemm_args.h"

namespace concert::kernels {

// As concert_rms_norm_body; residual 0: none.
struct RmsNormArgs {
  uint32_t rows, columns;
  Address x, residual, weight, out;
  uint64_t x_stride, residual_stride, out_stride;  // elements
  float epsilon;
  Dtype dtype;
  bool cast_first;
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_RMS_NORM_RMS_NORM_ARGS_H_
