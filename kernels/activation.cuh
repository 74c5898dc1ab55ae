// The activations of kernels::Activation, in fp32, in device code.
#ifndef CONCERT_KERNELS_ACTIVATION_CUH_
#define CONCERT_KERNELS_ACTIVATION_CUH_

#include <cstdint>
#include <type_traits>

#include "kernels/exp2.cuh"

namespace concert::kernels::cuda {

__device__ inline float Activate(float x, uint32_t activation) {
  switch (activation) {
    case 1:  // relu, which keeps NaN
      return x < 0 ? 0 : x;
    case 2:  // gelu, tanh approximation: the one of cuBLASLt's epilogue
      return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
    case 3:  // silu
      // Without the division's way for what is tiny, which would keep elements from being computed
      // side by side; below -87 the result is 0.
      return __fdividef(x, 1.0f + Exp2(-kLog2E * x));
    default:
      return x;
  }
}

// use(the activation as a constant): where code runs once, as in the row kernel, instructions of
// those that are not asked for cost more than what is computed.
template <typename Use>
__device__ __forceinline__ void WithActivation(uint32_t activation, const Use& use) {
  switch (activation) {
    case 1:
      return use(std::integral_constant<uint32_t, 1>());
    case 2:
      return use(std::integral_constant<uint32_t, 2>());
    case 3:
      return use(std::integral_constant<uint32_t, 3>());
    default:
      return use(std::integral_constant<uint32_t, 0>());
  }
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ACTIVATION_CUH_
