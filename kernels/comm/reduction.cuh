// How collectives combine elements of two ranks, in fp32.
#ifndef CONCERT_KERNELS_COMM_REDUCTION_CUH_
#define CONCERT_KERNELS_COMM_REDUCTION_CUH_

#include <cstdint>

namespace concert::kernels::cuda {

// kernels::Reduction, as device code knows it.
inline constexpr uint32_t kSumReduction = 0, kMaxReduction = 1, kMinReduction = 2;

__device__ inline float Combine(float a, float b, uint32_t reduction) {
  switch (reduction) {
    case kMaxReduction:
      return fmaxf(a, b);
    case kMinReduction:
      return fminf(a, b);
    default:
      return a + b;
  }
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_COMM_REDUCTION_CUH_
