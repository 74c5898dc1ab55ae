#include "tests/bench/statistics.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace concert::bench {
namespace {

TEST(StatisticsTest, QuantileInterpolatesAndDoesNotNeedOrder) {
  const std::vector<double> samples = {40, 10, 30, 20, 50};
  EXPECT_DOUBLE_EQ(Quantile(samples, 0), 10);
  EXPECT_DOUBLE_EQ(Quantile(samples, 0.5), 30);
  EXPECT_DOUBLE_EQ(Quantile(samples, 0.9), 46);
  EXPECT_DOUBLE_EQ(Quantile(samples, 1), 50);
  EXPECT_DOUBLE_EQ(Quantile(std::vector<double>{7}, 0.99), 7);
  EXPECT_TRUE(std::isnan(Quantile({}, 0.5)));
}

TEST(StatisticsTest, GeometricMean) {
  EXPECT_NEAR(GeometricMean(std::vector<double>{2, 8}), 4, 1e-12);
  EXPECT_TRUE(std::isnan(GeometricMean({})));
}

TEST(StatisticsTest, BlockDifferenceIgnoresWhatMovesBothSeries) {
  PairedBlocks blocks;
  for (double drift : {0.0, 100.0, 3.0, 50.0, 7.0}) {
    std::vector<double> local, ring;
    for (int i = 0; i < 101; ++i) {
      local.push_back(drift + i);
      ring.push_back(drift + i + 0.5);
    }
    blocks.Add(local, ring);
  }
  EXPECT_DOUBLE_EQ(blocks.BlockDifference(0.5), 0.5);
  EXPECT_DOUBLE_EQ(blocks.BlockDifference(0.99), 0.5);
  EXPECT_GT(blocks.Candidate(0.9), 100);
}

TEST(StatisticsTest, PooledDifferenceKeepsTheTailOfAFewBadBlocks) {
  PairedBlocks blocks;
  for (int block = 0; block < 10; ++block) {
    // In two blocks of ten every twentieth op of the ring is late.
    std::vector<double> local(100, 10.0), ring(100, 12.0);
    for (int i = 0; i < 100 && block < 2; i += 20) ring[i] = 60;
    blocks.Add(local, ring);
  }
  EXPECT_DOUBLE_EQ(blocks.PooledDifference(0.5), 2);
  EXPECT_DOUBLE_EQ(blocks.PooledDifference(0.995), 50);
  EXPECT_DOUBLE_EQ(blocks.BlockDifference(0.995), 2) << "the median block has no tail";
}

}  // namespace
}  // namespace concert::bench
