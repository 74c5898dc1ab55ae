// Numbers as bf16, here as elsewhere rounded once to nearest even.
#ifndef CONCERT_TESTS_SUPPORT_BF16_H_
#define CONCERT_TESTS_SUPPORT_BF16_H_

#include <bit>
#include <cstdint>

namespace concert::test {

// REQUIRES: not NaN.
constexpr uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

constexpr float FromBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

}  // namespace concert::test

#endif  // CONCERT_TESTS_SUPPORT_BF16_H_
