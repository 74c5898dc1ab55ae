#include "daemon/sched/hazards.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/support/seed.h"

namespace concert::daemon {
namespace {

using kernels::ByteRange;
using kernels::OpRanges;

OpRanges MakeRanges(ByteRange written, ByteRange weights) {
  return {.written = written, .weights = weights};
}

TEST(HazardsTest, WeightsAreCheckedToTheByte) {
  WritesInFlight writes;
  writes.Add({1000, 2000});
  writes.Add({5000, 6000});
  const auto settled = [&](ByteRange weights) {
    const OpRanges op = MakeRanges({9000, 9100}, weights);
    return WeightsSettled(writes, {&op, 1});
  };
  EXPECT_TRUE(settled({2000, 5000}));  // between the two
  EXPECT_TRUE(settled({0, 1000}));
  EXPECT_FALSE(settled({1999, 5000}));
  EXPECT_FALSE(settled({2000, 5001}));
  EXPECT_FALSE(settled({0, 100'000}));
  EXPECT_FALSE(settled({5500, 5501}));
}

TEST(HazardsTest, OpsWithoutWeightsAreSettled) {
  WritesInFlight writes;
  writes.Add({0, 2000});
  const OpRanges op = MakeRanges({3000, 4000}, {});
  EXPECT_TRUE(WeightsSettled(writes, {&op, 1}));
}

TEST(HazardsTest, OpsOfTheLaunchCountForEachOtherButNotForThemselves) {
  const WritesInFlight writes;
  const OpRanges in_place = MakeRanges({1000, 2000}, {1000, 2000});
  EXPECT_TRUE(WeightsSettled(writes, {&in_place, 1}));
  const OpRanges pair[] = {in_place, MakeRanges({1999, 2100}, {})};
  EXPECT_FALSE(WeightsSettled(writes, pair));
}

TEST(HazardsTest, RemovedWritesNoLongerCount) {
  WritesInFlight writes;
  const auto first = writes.Add({1000, 2000}), second = writes.Add({3000, 4000});
  const OpRanges op = MakeRanges({}, {1000, 1001});
  EXPECT_FALSE(WeightsSettled(writes, {&op, 1}));
  writes.Remove(first);
  EXPECT_TRUE(WeightsSettled(writes, {&op, 1}));
  EXPECT_EQ(writes.Add({1, 2}), first);
  writes.Remove(second);
  writes.Remove(first);
  EXPECT_EQ(writes.size(), 0);
}

TEST(HazardsTest, TooManyWritesMeanNotSettled) {
  WritesInFlight writes;
  for (uint64_t i = 0; i < WritesInFlight::kCapacity; ++i) writes.Add({i * 10, i * 10 + 1});
  const OpRanges op = MakeRanges({}, {5, 6});
  EXPECT_TRUE(WeightsSettled(writes, {&op, 1}));
  const auto slot = writes.Add({100'000, 100'001});
  EXPECT_EQ(slot, WritesInFlight::kNoSlot);
  EXPECT_FALSE(WeightsSettled(writes, {&op, 1}));
  writes.Remove(slot);
  EXPECT_TRUE(WeightsSettled(writes, {&op, 1}));
}

TEST(HazardsTest, TooManyComparisonsMeanNotSettled) {
  WritesInFlight writes;
  for (uint64_t i = 0; i < 64; ++i) writes.Add({i * 10, i * 10 + 1});
  std::vector<OpRanges> ops(64, MakeRanges({10'000, 10'001}, {5, 6}));
  EXPECT_TRUE(WeightsSettled(writes, ops));
  ops.push_back(ops[0]);
  EXPECT_FALSE(WeightsSettled(writes, ops));
  // What is far from all writes costs nothing.
  for (OpRanges& op : ops) op.weights = {20'000, 30'000};
  EXPECT_TRUE(WeightsSettled(writes, ops));
}

// Against the definition.
TEST(HazardsTest, AgreesWithComparingEverything) {
  SCOPED_TRACE(tests::Seed());
  std::mt19937 random(tests::Seed());
  const auto range = [&]() -> ByteRange {
    const uint64_t begin = random() % 2000;
    return {begin, begin + 1 + random() % 20};
  };
  int settled_count = 0;
  for (int round = 0; round < 2000; ++round) {
    WritesInFlight writes;
    std::vector<ByteRange> in_flight(random() % 12);
    for (ByteRange& written : in_flight) writes.Add(written = range());
    std::vector<OpRanges> ops;
    for (size_t i = random() % 4 + 1; i > 0; --i) ops.push_back(MakeRanges(range(), range()));
    bool want = true;
    for (size_t i = 0; i < ops.size(); ++i) {
      for (const ByteRange& written : in_flight) want &= !written.Overlaps(ops[i].weights);
      for (size_t j = 0; j < ops.size(); ++j) {
        want &= i == j || !ops[j].written.Overlaps(ops[i].weights);
      }
    }
    ASSERT_EQ(WeightsSettled(writes, ops), want) << "round " << round;
    settled_count += want;
  }
  EXPECT_GT(settled_count, 500);
  EXPECT_LT(settled_count, 1900);
}

}  // namespace
}  // namespace concert::daemon
