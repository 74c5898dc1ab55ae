// Divisions of small numbers, on which others wait.
#ifndef CONCERT_KERNELS_STEP_DIVISION_CUH_
#define CONCERT_KERNELS_STEP_DIVISION_CUH_

#include <cstdint>

namespace concert::kernels::cuda {

struct Division {
  uint32_t quotient, rest;
};

// a by b, for a below 2^22: by way of floats, whose quotient is two units of its last place off at
// most, which is one here. In fewer instructions, one behind the other, than the compiler's own
// division. A matrix has at most 2^21 units of columns, and attention at most as many items.
__device__ __forceinline__ Division DivisionOf(uint32_t a, uint32_t b) {
  Division by = {static_cast<uint32_t>(__fdividef(static_cast<float>(a), static_cast<float>(b)))};
  by.rest = a - by.quotient * b;
  if (static_cast<int>(by.rest) < 0) --by.quotient, by.rest += b;
  if (by.rest >= b) ++by.quotient, by.rest -= b;
  return by;
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_DIVISION_CUH_
