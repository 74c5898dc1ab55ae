// All 256 bit patterns of e4m3, and the quantisation that tests use.
#include "kernels/gemm/e4m3.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/quantize/quantize_args.h"
#include "tests/support/e4m3.h"
#include "tests/support/seed.h"

namespace concert::kernels {
namespace {

// The formula of the OFP8 specification.
double Reference(int bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const double sign = (bits & 0x80) != 0 ? -1 : 1;
  if ((bits & 0x7f) == 0x7f) return NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa / 8.0, -6);
  return sign * std::ldexp(1 + mantissa / 8.0, exponent - 7);
}

TEST(E4m3Test, EveryBitPatternDecodesAsSpecified) {
  for (int bits = 0; bits < 256; ++bits) {
    SCOPED_TRACE(bits);
    const float value = DecodeE4m3(static_cast<uint8_t>(bits));
    const double expected = Reference(bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value));
    } else {
      EXPECT_EQ(value, expected);
      EXPECT_EQ(std::signbit(value), (bits & 0x80) != 0);
    }
  }
  EXPECT_EQ(DecodeE4m3(0x7e), kMaxE4m3);
}

TEST(E4m3Test, EncodingIsTheInverse) {
  for (int bits = 0; bits < 256; ++bits) {
    EXPECT_EQ(test::EncodeE4m3(DecodeE4m3(static_cast<uint8_t>(bits))), bits);
  }
}

TEST(E4m3Test, EncodingRoundsToNearestEvenAndSaturates) {
  for (int bits = 0; bits < 0x7e; ++bits) {
    SCOPED_TRACE(bits);
    const float low = DecodeE4m3(static_cast<uint8_t>(bits));
    const float high = DecodeE4m3(static_cast<uint8_t>(bits + 1));
    const float middle = (low + high) / 2;
    EXPECT_EQ(test::EncodeE4m3(middle), bits + bits % 2);
    EXPECT_EQ(test::EncodeE4m3(std::nextafter(middle, low)), bits);
    EXPECT_EQ(test::EncodeE4m3(-std::nextafter(middle, high)), 0x80 | (bits + 1));
  }
  EXPECT_EQ(test::EncodeE4m3(1e9f), 0x7e);
  EXPECT_EQ(test::EncodeE4m3(-INFINITY), 0xfe);
}

// What kernels compute from bits is what a search among all numbers finds.
TEST(E4m3Test, KernelsRoundToTheNearest) {
  const auto check = [](float value) {
    const uint8_t want = std::isnan(value) ? 0x7f : test::EncodeE4m3(value);
    ASSERT_EQ(int{E4m3Of(value)}, int{want}) << value;
  };
  for (int bits = 0; bits < 0x7e; ++bits) {
    const float number = DecodeE4m3(static_cast<uint8_t>(bits));
    const float middle = (number + DecodeE4m3(static_cast<uint8_t>(bits + 1))) / 2;
    for (const float value : {number, middle}) {
      for (const float towards : {0.0f, value, INFINITY}) {
        const float near = std::nextafter(value, towards);
        check(near);
        check(-near);
      }
    }
  }
  std::mt19937 random(static_cast<uint32_t>(test::Seed()));
  for (int i = 0; i < 1'000'000; ++i) check(FloatOf(random()));  // also NaN, subnormals, infinity
  for (const float value : {448.0f, 464.0f, 465.0f, 1e30f, INFINITY, NAN, 0x1p-149f}) {
    check(value);
    check(-value);
  }
}

}  // namespace
}  // namespace concert::kernels
