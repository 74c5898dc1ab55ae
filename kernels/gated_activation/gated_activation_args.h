// A gated activation with addresses, shared by host and device code.
#ifndef CONCERT_KERNELS_GATED_ACTIVATION_GATED_ACTIVATION_ARGS_H_
#define CONCERT_KERNELS_GATED_ACTIVATION_GATED_ACTIVATION_ARGS_H_

#include <cstdint>

#include "kernels/gemm/gemm_args.h"

namespace concert::kernels {

// As concert_gated_activation_body.
struct GatedActivationArgs {
  uint32_t rows, columns;
  Address x, out;
  uint64_t x_stride, out_stride;  // elements
  Dtype dtype;
  Activation activation;
  bool interleaved;
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_GATED_ACTIVATION_GATED_ACTIVATION_ARGS_H_
