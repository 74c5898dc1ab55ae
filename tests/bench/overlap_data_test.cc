#include "tests/bench/overlap_data.h"

#include <cmath>
#include <cstring>

#include "Eigen/Core"
#include "gtest/gtest.h"

namespace concert::bench {
namespace {

constexpr uint32_t kRanks = 3;
constexpr uint64_t kBytes = 6000;

float At(std::span<const uint8_t> bytes, size_t element) {
  Eigen::bfloat16 value;
  std::memcpy(&value, &bytes[element * sizeof(value)], sizeof(value));
  return static_cast<float>(value);
}

CollectiveShape OfThree(CollectiveKind kind) {
  return {.kind = kind, .bytes = kBytes, .ranks = kRanks};
}

class OverlapDataTest : public testing::Test {
 protected:
  float Input(uint32_t rank, size_t element) const {
    return At(data_.Input(rank, kBytes), element);
  }

  OverlapData data_{kRanks, kBytes, /*seed=*/1};
};

TEST_F(OverlapDataTest, RanksHaveInputsOfTheirOwn) {
  EXPECT_EQ(data_.Input(0, kBytes).size(), kBytes);
  EXPECT_EQ(data_.Input(0, 100).size(), 100u);
  EXPECT_NE(Input(0, 7), Input(1, 7));
  EXPECT_LE(std::abs(Input(2, 7)), 1);
}

TEST_F(OverlapDataTest, EveryKindHasItsResult) {
  constexpr size_t kCount = kBytes / 2, kSlot = kCount / kRanks, kI = 5;
  const uint32_t rank = 1;
  const auto sum = [&](size_t element) {
    return static_cast<float>(
        Eigen::bfloat16(Input(0, element) + Input(1, element) + Input(2, element)));
  };
  const auto all_reduce = data_.After(OfThree(CollectiveKind::kAllReduce), rank);
  ASSERT_EQ(all_reduce.size(), kBytes);
  EXPECT_EQ(At(all_reduce, kCount - 1), sum(kCount - 1));
  const auto scattered = data_.After(OfThree(CollectiveKind::kReduceScatter), rank);
  ASSERT_EQ(scattered.size(), kBytes / kRanks);
  EXPECT_EQ(At(scattered, kI), sum(kSlot + kI));
  const auto gathered = data_.After(OfThree(CollectiveKind::kAllGather), rank);
  EXPECT_EQ(At(gathered, 2 * kSlot + kI), Input(2, kI));
  const auto exchanged = data_.After(OfThree(CollectiveKind::kAllToAll), rank);
  EXPECT_EQ(At(exchanged, 2 * kSlot + kI), Input(2, kSlot + kI));
  EXPECT_EQ(At(data_.After(OfThree(CollectiveKind::kBroadcast), rank), kI), Input(0, kI));
}

TEST_F(OverlapDataTest, OutputsArePoisonedExceptForInputsInPlace) {
  constexpr size_t kSlot = kBytes / 2 / kRanks;
  EXPECT_TRUE(std::isnan(At(data_.Before(OfThree(CollectiveKind::kAllReduce), 1), 0)));
  const auto gathered = data_.Before(OfThree(CollectiveKind::kAllGather), 1);
  EXPECT_TRUE(std::isnan(At(gathered, kSlot - 1)));
  EXPECT_EQ(At(gathered, kSlot), Input(1, 0));
  EXPECT_TRUE(std::isnan(At(gathered, 2 * kSlot)));
  EXPECT_EQ(At(data_.Before(OfThree(CollectiveKind::kBroadcast), 0), 3), Input(0, 3));
  EXPECT_TRUE(std::isnan(At(data_.Before(OfThree(CollectiveKind::kBroadcast), 1), 3)));
}

TEST_F(OverlapDataTest, WhatIsLongerThanASequenceGoesOnWithIt) {
  const OverlapData data(2, OverlapData::kPeriodBytes + 4096, /*seed=*/2);
  const CollectiveShape shape = {
      .kind = CollectiveKind::kBroadcast, .bytes = OverlapData::kPeriodBytes + 4096, .ranks = 2};
  const auto after = data.After(shape, 1);
  EXPECT_EQ(At(after, OverlapData::kPeriodBytes / 2 + 9), At(after, 9));
  EXPECT_EQ(data.Input(0, shape.bytes).size(), OverlapData::kPeriodBytes);
}

TEST_F(OverlapDataTest, AWrongElementAndAMissingOneShow) {
  const std::vector<uint8_t> right = data_.After(OfThree(CollectiveKind::kAllReduce), 0);
  EXPECT_EQ(RelativeErrorOfBf16(right, right), 0);
  std::vector<uint8_t> wrong = right;
  wrong[1001] ^= 0x40;  // the exponent of one of 3000
  EXPECT_GT(RelativeErrorOfBf16(right, wrong), 1e-2);
  const std::vector<uint8_t> missing = data_.Before(OfThree(CollectiveKind::kAllReduce), 0);
  EXPECT_TRUE(std::isnan(RelativeErrorOfBf16(right, missing)));
}

}  // namespace
}  // namespace concert::bench
