// The 8-bit float e4m3 as numbers: OCP 8-bit Floating Point Specification (OFP8) 1.0, section 5.1.
//
// 1 sign, 4 exponent and 3 mantissa bits, bias 7, subnormals, no infinities; the largest number is
// 448 (0x7e), NaN is 0x7f and 0xff. CUDA calls it e4m3fn.
#ifndef CONCERT_KERNELS_GEMM_E4M3_H_
#define CONCERT_KERNELS_GEMM_E4M3_H_

#include <array>
#include <cstdint>
#include <limits>

namespace concert::kernels {

inline constexpr float kMaxE4m3 = 448;

// Every e4m3 value, by its bits. fp32 holds all of them exactly.
inline constexpr std::array<float, 256> kE4m3Values = [] {
  std::array<float, 256> values{};
  for (int bits = 0; bits < 128; ++bits) {
    const int exponent = bits >> 3, mantissa = bits & 7;
    // Subnormals have exponent 1 without the leading 1: mantissa * 2^-9 = mantissa / 8 * 2^-6.
    float value = static_cast<float>(exponent == 0 ? mantissa : 8 + mantissa) / 512;
    for (int power = 1; power < exponent; ++power) value *= 2;
    if (bits == 0x7f) value = std::numeric_limits<float>::quiet_NaN();
    values[static_cast<unsigned>(bits)] = value;
    values[static_cast<unsigned>(bits | 0x80)] = -value;
  }
  return values;
}();

constexpr float DecodeE4m3(uint8_t bits) { return kE4m3Values[bits]; }

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_GEMM_E4M3_H_
