// Random numbers and weights of sampling.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/sample/draw.h"

namespace concert::kernels {
namespace {

void ExpectWords(const PhiloxWords& counter, uint64_t key, const PhiloxWords& want) {
  const PhiloxWords got = Philox(counter, key);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(got.words[i], want.words[i]) << "word " << i;
}

// Known answers that come with the authors' Random123.
TEST(PhiloxTest, GivesTheKnownAnswers) {
  ExpectWords({{0, 0, 0, 0}}, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  ExpectWords({{~0u, ~0u, ~0u, ~0u}}, ~uint64_t{0},
              {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  ExpectWords({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822,
              {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

TEST(WeightsTest, ArePowersOfWhatTheyShouldBe) {
  for (const float temperature : {0.01f, 0.7f, 1.0f, 20.0f}) {
    const float largest = 11.5f;
    const Weights weights({.temperature = temperature}, OrderOf(largest));
    for (int i = 0; i <= 100000; ++i) {
      const float x = largest - 30 * temperature * static_cast<float>(i) / 100000;
      const double want =
          std::exp((static_cast<double>(x) - largest) / temperature) * std::ldexp(1, kWeightBits);
      ASSERT_NEAR(static_cast<double>(weights(x)), want, want * 4e-6 + 1) << x;
    }
  }
}

TEST(WeightsTest, HaveNoneOfWhatIsFarBelowOrNoNumber) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Weights weights({.temperature = 1}, OrderOf(3));
  EXPECT_GT(weights(3 - 30), 0u);
  EXPECT_EQ(weights(3 - 31), 0u);
  EXPECT_EQ(weights(-infinity), 0u);
  EXPECT_EQ(weights(infinity), 0u);
  EXPECT_EQ(weights(3.5f), 0u);
  EXPECT_EQ(weights(std::nanf("")), 0u);
  const Weights equal({.temperature = infinity}, OrderOf(3));
  EXPECT_EQ(equal(-3e38f), equal(3));
  EXPECT_EQ(equal(-infinity), 0u);
  const Weights steep({.temperature = 2e-6f}, OrderOf(-3e38f));
  EXPECT_GT(steep(-3e38f), 0u);
}

// As many as a row may have do not overflow their sum.
TEST(WeightsTest, SumsFit) {
  const Weights weights({.temperature = 1}, OrderOf(0));
  EXPECT_LT(weights(0), std::numeric_limits<uint64_t>::max() / kMaxSampleColumns);
}

TEST(DrawTest, SharesOutsideOfTheirRangeAreNone) {
  EXPECT_EQ(TopPOf(0), 0u);
  EXPECT_EQ(TopPOf(-1), 0u);
  EXPECT_EQ(TopPOf(1), 0u);
  EXPECT_EQ(TopPOf(std::nanf("")), 0u);
  EXPECT_EQ(TopPOf(0.5f), uint64_t{1} << 63);
  EXPECT_EQ(TopPOf(1e-30f), 1u);
  EXPECT_EQ(TopPOf(std::nextafter(1.0f, 0.0f)), ~uint64_t{0} << 40);
  EXPECT_EQ(TopPTarget({.top_p = 1}, 1000), 1u);
  EXPECT_EQ(TopPTarget({.top_p = uint64_t{1} << 63}, 1000), 500u);
}

}  // namespace
}  // namespace concert::kernels
