// Divisions of small numbers, on which others wait.
#ifndef CONCERT_KERNELS_STEP_DIVISION_CUH_
#define CONCERT_KERNELS_STEP_DIVISION_CUH_

#include <cstdint>

namespace concert::kernels::cuda {

struct Division {
  uint32_t quotient, rest;
};

// a by b, for a below 2^24: by way of floats, whose quotient is one off at most, in fewer
// instructions, one behind the other, than the compiler makes of a division.
__device__ __forceinline__ Division DivisionOf(uint32_t a, uint32_t b) {
  Division by = {static_cast<uint32_t>(__fdividef(static_cast<float>(a), static_cast<float>(b)))};
  by.rest = a - by.quotient * b;
  if (static_cast<int>(by.rest) < 0) --by.quotient, by.rest += b;
  if (by.rest >= b) ++by.quotient, by.rest -= b;
  return by;
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_DIVISION_CUH_
