// How collectives combine elements of two ranks, in fp32.
#ifndef CONCERT_KERNELS_COMM_REDUCTION_CUH_
#define CONCERT_KERNELS_COMM_REDUCTION_CUH_

#include <cstdint>

namespace concert::kernels::cuda {

// `reduction`: kernels::Reduction.
__device__ inline float Combine(float a, float b, uint32_t reduction) {
  switch (reduction) {
    case 1:
      return fmaxf(a, b);
    case 2:
      return fminf(a, b);
    default:
      return a + b;
  }
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_COMM_REDUCTION_CUH_
