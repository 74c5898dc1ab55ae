// Arguments of the gated activation in device code, shared by host and device code.
#ifndef CONCERT_KERNELS_GATED_ACTIVATION_GATED_ACTIVATION_ARGS_H_
#define CONCERT_KERNELS_GATED_ACTIVATION_GATED_ACTIVATION_ARGS_H_

#include <cstdint>

namespace concert::kernels::cuda {

// As concert_gated_activation_body. `activation` is kernels::Activation.
struct GatedActivationKernelArgs {
  const void* x;
  void* out;
  uint64_t x_stride, out_stride;  // elements
  uint32_t rows, columns;
  uint32_t activation;
  uint32_t interleaved;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GATED_ACTIVATION_GATED_ACTIVATION_ARGS_H_
