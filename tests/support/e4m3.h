// Numbers as e4m3, rounded once to nearest even: what a client's quantisation does.
#ifndef CONCERT_TESTS_SUPPORT_E4M3_H_
#define CONCERT_TESTS_SUPPORT_E4M3_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/gemm/e4m3.h"

namespace concert::test {

// Numbers beyond 448 become 448; NaN stays NaN.
inline uint8_t EncodeE4m3(float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7f;
  const float magnitude = std::min(std::fabs(value), kernels::kMaxE4m3);
  // The positive numbers are in order: 0 to 448 are 0x00 to 0x7e.
  const float* const first = kernels::kE4m3Values.data();
  const float* const above = std::lower_bound(first, first + 0x7e, magnitude);
  auto bits = static_cast<uint8_t>(above - first);
  if (bits > 0) {
    const float up = *above - magnitude, down = magnitude - *(above - 1);
    if (down < up || (down == up && bits % 2 != 0)) --bits;
  }
  return sign | bits;
}

}  // namespace concert::test

#endif  // CONCERT_TESTS_SUPPORT_E4M3_H_
