// The bits of floats, and floats in an order that integers have. For host and device code.
#ifndef CONCERT_KERNELS_FLOAT_ORDER_H_
#define CONCERT_KERNELS_FLOAT_ORDER_H_

#include <cstdint>
#include <cstring>

#include "kernels/indices.h"

namespace concert::kernels {

CONCERT_ON_BOTH_SIDES inline uint32_t BitsOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
CONCERT_ON_BOTH_SIDES inline float FloatOf(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// The larger the value, the larger its order; NaN is above all, and -0 equal to 0.
CONCERT_ON_BOTH_SIDES inline uint32_t OrderOf(float value) {
  if (value != value) return ~0u;
  const uint32_t bits = BitsOf(value == 0 ? 0 : value);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
// The value of that order; NaN for NaN's.
CONCERT_ON_BOTH_SIDES inline float ValueOfOrder(uint32_t order) {
  return FloatOf((order & 0x80000000u) != 0 ? order & 0x7fffffffu : ~order);
}

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_FLOAT_ORDER_H_
