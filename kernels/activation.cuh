// The activations of kernels::Activation, in fp32, in device code.
#ifndef CONCERT_KERNELS_ACTIVATION_CUH_
#define CONCERT_KERNELS_ACTIVATION_CUH_

#include <cstdint>

namespace concert::kernels::cuda {

__device__ inline float Activate(float x, uint32_t activation) {
  switch (activation) {
    case 1:  // relu
      return x < 0 ? 0 : x;  // keeps NaN
    case 2:  // gelu, tanh approximation: the one of cuBLASLt's epilogue
      return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
    case 3:  // silu
      return x / (1.0f + __expf(-x));
    default:
      return x;
  }
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ACTIVATION_CUH_
