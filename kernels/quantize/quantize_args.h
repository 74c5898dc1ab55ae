// A quantisation with addresses, and what it computes, both shared by host and device code: results
// are the same bits on both.
#ifndef CONCERT_KERNELS_QUANTIZE_QUANTIZE_ARGS_H_
#define CONCERT_KERNELS_QUANTIZE_QUANTIZE_ARGS_H_

#include <cstdint>

#include "kernels/float_order.h"
#include "kernels/gemm/e4m3.h"
#include "kernels/gemm/gemm_args.h"
#include "kernels/indices.h"

namespace concert::kernels {

// As concert_quantize_body.
struct QuantizeArgs {
  uint32_t rows, columns;
  Address x, out, scales;
  uint64_t x_stride, out_stride;  // elements
  Dtype dtype;
};

// The bits of |value|. They are in the order of magnitudes, with infinity and then NaN on top.
CONCERT_ON_BOTH_SIDES inline uint32_t MagnitudeOf(float value) {
  return BitsOf(value) & 0x7fffffffu;
}

// Of a row whose largest magnitude is that.
CONCERT_ON_BOTH_SIDES inline float ScaleOf(uint32_t magnitude) {
  constexpr uint32_t kInfinity = 0x7f800000u, kNan = 0x7fc00000u;
  constexpr float kLeast = 0x1p-126f;
  if (magnitude >= kInfinity) return FloatOf(kNan);
  const float scale = FloatOf(magnitude) / kMaxE4m3;
  return scale < kLeast ? kLeast : scale;
}

// Rounded once, to nearest even; what is beyond 448 becomes 448, and any NaN 0x7f. By the bits of
// the two formats: OCP 8-bit Floating Point Specification (OFP8) 1.0, section 5.1.
CONCERT_ON_BOTH_SIDES inline uint8_t E4m3Of(float value) {
  constexpr uint32_t kNan = 0x7f, kLargest = 0x7e;
  constexpr uint32_t kMantissaCut = 20, kBiasGap = 127 - 7;
  if (value != value) return kNan;
  const uint32_t sign = BitsOf(value) >> 24 & 0x80u;
  const uint32_t magnitude = MagnitudeOf(value);
  uint32_t bits;
  if (magnitude >= BitsOf(kMaxE4m3)) {
    bits = kLargest;
  } else if (magnitude < BitsOf(0x1p-6f)) {
    // Subnormals count 2^-9, as the mantissa of a float does that 2^14 is added to.
    bits = BitsOf(FloatOf(magnitude) + 0x1p14f) & 0xffu;
  } else {
    const uint32_t even = magnitude >> kMantissaCut & 1;
    bits = ((magnitude + (1u << (kMantissaCut - 1)) - 1 + even) >> kMantissaCut) - (kBiasGap << 3);
  }
  return static_cast<uint8_t>(sign | bits);
}

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_QUANTIZE_QUANTIZE_ARGS_H_
