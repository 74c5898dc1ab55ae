#include "daemon/telemetry/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/support/seed.h"

namespace concert::daemon {
namespace {

TEST(HistogramTest, EmptyIsAllZero) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.MeanUs(), 0);
  EXPECT_EQ(histogram.QuantileUs(0.5), 0);
  EXPECT_EQ(histogram.MaxUs(), 0);
}

TEST(HistogramTest, OneValueIsWithinItsResolutionOverTheWholeRange) {
  for (double ns = 100; ns < 1e12; ns *= 1.37) {
    Histogram histogram;
    histogram.Add(static_cast<int64_t>(ns));
    for (const double quantile : {0.01, 0.5, 0.99}) {
      EXPECT_NEAR(histogram.QuantileUs(quantile), ns / 1e3, 0.032 * ns / 1e3) << ns;
    }
    EXPECT_GE(histogram.MaxUs() * 1e3, std::floor(ns));
    EXPECT_LE(histogram.MaxUs() * 1e3, ns * 1.07);
  }
}

TEST(HistogramTest, OutOfRangeValuesCountAtTheEnds) {
  Histogram histogram;
  histogram.Add(-5);
  histogram.Add(0);
  histogram.Add(INT64_MAX);
  EXPECT_EQ(histogram.count(), 3u);
  EXPECT_LT(histogram.QuantileUs(0.3), 0.1);
  EXPECT_GT(histogram.QuantileUs(0.99), 1e9);
}

TEST(HistogramTest, CountsWhatLiesBelowAnOctave) {
  Histogram histogram;
  for (const int64_t ns : {0, 100, 1023, 1024, 5000}) histogram.Add(ns);
  EXPECT_EQ(histogram.CountBelow(7), 2u);
  EXPECT_EQ(histogram.CountBelow(10), 3u);
  EXPECT_EQ(histogram.CountBelow(11), 4u);
  EXPECT_EQ(histogram.CountBelow(Histogram::kLastOctave), 5u);
}

TEST(HistogramTest, QuantilesFollowTheSortedSample) {
  SCOPED_TRACE(test::Seed());
  std::mt19937 random(test::Seed());
  std::lognormal_distribution<double> latency_ns(10, 1.5);
  Histogram histogram;
  std::vector<int64_t> sample;
  double sum = 0;
  for (int i = 0; i < 20'000; ++i) {
    sample.push_back(static_cast<int64_t>(latency_ns(random)) + 64);
    histogram.Add(sample.back());
    sum += static_cast<double>(sample.back());
  }
  std::sort(sample.begin(), sample.end());
  for (const double quantile : {0.5, 0.9, 0.99}) {
    const double exact_us =
        static_cast<double>(sample[std::ceil(quantile * sample.size()) - 1]) / 1e3;
    EXPECT_NEAR(histogram.QuantileUs(quantile), exact_us, 0.032 * exact_us) << quantile;
  }
  EXPECT_NEAR(histogram.MeanUs(), sum / sample.size() / 1e3, 1e-6 * sum);
}

TEST(HistogramTest, MergeAddsAndSubtractTakesBack) {
  Histogram a, b;
  for (int i = 1; i <= 100; ++i) a.Add(i * 1000);
  for (int i = 1; i <= 50; ++i) b.Add(i * 100'000);
  Histogram both = a;
  both.Merge(b);
  EXPECT_EQ(both.count(), 150u);
  EXPECT_EQ(both.sum_ns(), a.sum_ns() + b.sum_ns());
  both.Subtract(a);
  EXPECT_EQ(both, b);
}

}  // namespace
}  // namespace concert::daemon
