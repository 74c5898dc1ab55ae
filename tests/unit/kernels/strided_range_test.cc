#include "kernels/strided_range.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/support/seed.h"

namespace concert::kernels {
namespace {

// With pieces enough for small ones.
bool Meet(const StridedRange& a, const StridedRange& b) {
  int pieces_left = 256;
  return Meet(a, b, pieces_left);
}

TEST(StridedRangeTest, WhatIsDenseHasNoLevel) {
  const StridedRange rows = StridedRange::Of(100, 32, 8, 32, 1, 0);
  EXPECT_EQ(rows.level_count, 0);
  EXPECT_EQ(rows.Bounds(), (ByteRange{100, 100 + 8 * 32}));
  const StridedRange batch = StridedRange::Of(100, 32, 8, 32, 4, 8 * 32);
  EXPECT_EQ(batch.level_count, 0);
  EXPECT_EQ(batch.Bounds(), (ByteRange{100, 100 + 4 * 8 * 32}));
  // Heads of attention: rows of the batch's matrices take turns.
  const StridedRange heads = StridedRange::Of(100, 32, 8, 4 * 32, 4, 32);
  EXPECT_EQ(heads.level_count, 0);
  EXPECT_EQ(heads.Bounds(), (ByteRange{100, 100 + 4 * 8 * 32}));
  // One matrix for the whole batch.
  EXPECT_EQ(StridedRange::Of(100, 32, 8, 32, 4, 0).Bounds(), (ByteRange{100, 100 + 8 * 32}));
  // Strides of what occurs once may be any number.
  EXPECT_EQ(StridedRange::Of(100, 32, 1, UINT64_MAX, 1, UINT64_MAX).Bounds(),
            (ByteRange{100, 132}));
}

TEST(StridedRangeTest, PaddedRowsOfABatchAreOneLevel) {
  const StridedRange batch = StridedRange::Of(0, 32, 8, 48, 4, 8 * 48);
  ASSERT_EQ(batch.level_count, 1);
  EXPECT_EQ(batch.levels[0].count, 32u);
  EXPECT_EQ(batch.levels[0].stride, 48u);
}

TEST(StridedRangeTest, ColumnsSideBySideDoNotMeet) {
  // Q, K and V of one output, 64 rows of 3 * 128 bytes.
  const StridedRange q = StridedRange::Of(1000, 128, 64, 384, 1, 0);
  const StridedRange k = StridedRange::Of(1128, 128, 64, 384, 1, 0);
  ASSERT_TRUE(q.Bounds().Overlaps(k.Bounds()));
  EXPECT_FALSE(Meet(q, k));
  EXPECT_TRUE(Meet(q, StridedRange::Of(1127, 128, 64, 384, 1, 0)));
  // A row further on they are the same columns again.
  EXPECT_TRUE(Meet(q, StridedRange::Of(1000 + 63 * 384, 128, 64, 384, 1, 0)));
  EXPECT_FALSE(Meet(q, StridedRange::Of(1000 + 64 * 384, 128, 64, 384, 1, 0)));
  // All three are read as one matrix.
  EXPECT_TRUE(Meet(q, StridedRange::Of(1000, 384, 64, 384, 1, 0)));
  // What lies between two rows is nobody's.
  EXPECT_FALSE(Meet(q, {.begin = 1128, .run_bytes = 256}));
  EXPECT_TRUE(Meet(q, {.begin = 1128, .run_bytes = 257}));
}

TEST(StridedRangeTest, WhatTakesTooLongIsNotSaidToMeet) {
  // Odd and even bytes by strides that differ: every piece would have to be looked at.
  const StridedRange even = StridedRange::Of(0, 1, 1'000'000, 4, 1, 0);
  const StridedRange odd = StridedRange::Of(1, 1, 1'000'000, 6, 1, 0);
  int pieces_left = 1000;
  EXPECT_FALSE(Meet(even, odd, pieces_left));
  EXPECT_EQ(pieces_left, 0);
}

std::vector<bool> BytesOf(const StridedRange& range) {
  std::vector<bool> bytes(2048);
  const auto count = [&](int level) {
    return level < range.level_count ? range.levels[static_cast<size_t>(level)].count : 1;
  };
  const auto stride = [&](int level) { return range.levels[static_cast<size_t>(level)].stride; };
  for (uint64_t i = 0; i < count(0); ++i) {
    for (uint64_t j = 0; j < count(1); ++j) {
      for (uint64_t k = 0; k < range.run_bytes; ++k)
        bytes[range.begin + i * stride(0) + j * stride(1) + k] = true;
    }
  }
  return bytes;
}

TEST(StridedRangeTest, SmallOnesMeetWhereTheirBytesDo) {
  std::mt19937 random(test::Seed());
  const auto up_to = [&](uint64_t most) { return random() % most + 1; };
  int met = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::array<StridedRange, 2> ranges;
    std::array<std::vector<bool>, 2> bytes;
    for (size_t side = 0; side < 2; ++side) {
      const uint64_t begin = random() % 200, row = up_to(12), rows = up_to(6), batch = up_to(4);
      const uint64_t row_stride = up_to(40), batch_stride = random() % 100;
      ranges[side] = StridedRange::Of(begin, row, rows, row_stride, batch, batch_stride);
      bytes[side].resize(2048);
      for (uint64_t j = 0; j < rows * batch * row; ++j) {
        bytes[side][begin + j % row + j / row % rows * row_stride + j / row / rows * batch_stride] =
            true;
      }
      ASSERT_EQ(BytesOf(ranges[side]), bytes[side]);
    }
    bool shared = false;
    for (size_t j = 0; j < bytes[0].size(); ++j) shared |= bytes[0][j] && bytes[1][j];
    ASSERT_EQ(Meet(ranges[0], ranges[1]), shared) << i;
    ASSERT_EQ(Meet(ranges[1], ranges[0]), shared) << i;
    met += shared ? 1 : 0;
  }
  EXPECT_GT(met, 1000);
  EXPECT_LT(met, 19'000);
}

}  // namespace
}  // namespace concert::kernels
