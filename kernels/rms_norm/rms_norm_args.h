// Arguments of the RMS norm in device code, shared by host and device code.
#ifndef CONCERT_KERNELS_RMS_NORM_RMS_NORM_ARGS_H_
#define CONCERT_KERNELS_RMS_NORM_RMS_NORM_ARGS_H_

#include <cstdint>

namespace concert::kernels::cuda {

// As concert_rms_norm_body. residual null: none.
struct RmsNormKernelArgs {
  const void *x, *weight;
  void *residual, *out;
  uint64_t x_stride, residual_stride, out_stride;  // elements
  uint32_t rows, columns;
  float epsilon;
  uint32_t cast_first;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_RMS_NORM_RMS_NORM_ARGS_H_
