#include "daemon/sched/hazards.h"

#include <gtest/gtest.h>

#include <random>
#include <span>
#include <vector>

#include "tests/support/seed.h"

namespace concert::daemon {
namespace {

using kernels::AccessMode;
using kernels::ByteRange;
using kernels::StridedRange;

struct TestOp {
  std::vector<ByteRange> written, early;
};

LaunchRanges RangesOf(const std::vector<TestOp>& ops) {
  LaunchRanges launch(ops.size());
  for (const TestOp& test_op : ops) {
    const kernels::Op op;
    kernels::Accesses accesses;
    const auto add = [&](AccessMode mode, const std::vector<ByteRange>& ranges) {
      for (const ByteRange& range : ranges) {
        accesses.Add(op, CONCERT_FIELD_NONE, mode).Set(range.begin, range.end - range.begin);
      }
    };
    add(AccessMode::kRead, {{0, 1'000'000}});  // in order, so nothing to wait for
    add(AccessMode::kReadEarly, test_op.early);
    add(AccessMode::kWrite, test_op.written);
    launch.Add(accesses);
  }
  return launch;
}

bool Ready(WritesInFlight& writes, const std::vector<TestOp>& ops) {
  return WeightsReady(writes, RangesOf(ops));
}

WritesInFlight::Slots Add(WritesInFlight& writes, std::span<const ByteRange> ranges) {
  WritesInFlight::Slots slots;
  writes.Add(ranges, slots);
  return slots;
}
WritesInFlight::Slots Add(WritesInFlight& writes, ByteRange range) {
  return Add(writes, std::span(&range, 1));
}

TEST(HazardsTest, WeightsAreCheckedToTheByte) {
  WritesInFlight writes;
  Add(writes, {1000, 2000});
  Add(writes, {5000, 6000});
  const auto ready = [&](ByteRange weights) {
    return Ready(writes, {{.written = {{9000, 9100}}, .early = {weights}}});
  };
  EXPECT_TRUE(ready({2000, 5000}));  // between the two
  EXPECT_TRUE(ready({0, 1000}));
  EXPECT_FALSE(ready({1999, 5000}));
  EXPECT_FALSE(ready({2000, 5001}));
  EXPECT_FALSE(ready({0, 100'000}));
  EXPECT_FALSE(ready({5500, 5501}));
}

TEST(HazardsTest, EveryRangeOfAnOpCounts) {
  WritesInFlight writes;
  const std::vector<ByteRange> two = {{1000, 2000}, {5000, 6000}};
  const auto slots = Add(writes, two);
  EXPECT_FALSE(Ready(writes, {{.written = {}, .early = {{0, 1}, {5500, 5501}}}}));
  EXPECT_FALSE(Ready(writes, {{.written = {}, .early = {{1500, 1501}, {0, 1}}}}));
  EXPECT_TRUE(Ready(writes, {{.written = {}, .early = {{2000, 5000}, {0, 1}}}}));
  writes.Remove(slots);
  EXPECT_EQ(writes.Union(), WritesInFlight::kNothing);
  EXPECT_FALSE(Ready(writes, {{.written = {{1, 2}, {5000, 6000}}, .early = {}},
                              {.written = {}, .early = {{5500, 5501}}}}));
}

TEST(HazardsTest, OpsWithoutWeightsAreReady) {
  WritesInFlight writes;
  Add(writes, {0, 2000});
  EXPECT_TRUE(Ready(writes, {{.written = {{3000, 4000}}, .early = {}}}));
}

TEST(HazardsTest, OpsOfTheLaunchCountForEachOtherButNotForThemselves) {
  WritesInFlight writes;
  const TestOp in_place = {.written = {{1000, 2000}}, .early = {{1000, 2000}}};
  EXPECT_TRUE(Ready(writes, {in_place}));
  EXPECT_FALSE(Ready(writes, {in_place, {.written = {{1999, 2100}}, .early = {}}}));
}

TEST(HazardsTest, RemovedWritesNoLongerCount) {
  WritesInFlight writes;
  const auto first = Add(writes, {1000, 2000}), second = Add(writes, {3000, 4000});
  const std::vector<TestOp> ops = {{.written = {}, .early = {{1000, 1001}}}};
  EXPECT_FALSE(Ready(writes, ops));
  writes.Remove(first);
  EXPECT_TRUE(Ready(writes, ops));
  EXPECT_EQ(Add(writes, {1, 2}).slot[0], first.slot[0]);
  writes.Remove(second);
  writes.Remove(first);
  EXPECT_EQ(writes.Union(), WritesInFlight::kNothing);
}

TEST(HazardsTest, TooManyWritesMeanNotReady) {
  WritesInFlight writes;
  for (uint64_t i = 0; i < WritesInFlight::kCapacity; ++i) Add(writes, {i * 10, i * 10 + 1});
  const std::vector<TestOp> ops = {{.written = {}, .early = {{5, 6}}}};
  EXPECT_TRUE(Ready(writes, ops));
  const auto slots = Add(writes, {100'000, 100'001});
  EXPECT_TRUE(slots.missing);
  EXPECT_FALSE(Ready(writes, ops));
  writes.Remove(slots);
  EXPECT_TRUE(Ready(writes, ops));
}

TEST(HazardsTest, AnOpThatWritesMoreThanIsKeptOfItMeansNotReady) {
  WritesInFlight writes;
  const std::vector<ByteRange> many(WritesInFlight::kMaxSlots + 1, {1000, 2000});
  const std::vector<TestOp> ops = {{.written = {}, .early = {{5, 6}}}};
  const auto slots = Add(writes, many);
  EXPECT_FALSE(Ready(writes, ops));
  writes.Remove(slots);
  EXPECT_TRUE(Ready(writes, ops));
  EXPECT_EQ(writes.Union(), WritesInFlight::kNothing);
}

TEST(HazardsTest, TooManyComparisonsMeanNotReady) {
  WritesInFlight writes;
  for (uint64_t i = 0; i < 64; ++i) Add(writes, {i * 10, i * 10 + 1});
  std::vector<TestOp> ops(64, {.written = {{10'000, 10'001}}, .early = {{5, 6}}});
  EXPECT_TRUE(Ready(writes, ops));
  ops.push_back(ops[0]);
  EXPECT_FALSE(Ready(writes, ops));
  // What is far from all writes costs nothing.
  for (TestOp& op : ops) op.early = {{20'000, 30'000}};
  EXPECT_TRUE(Ready(writes, ops));
}

// Against the definition.
TEST(HazardsTest, AgreesWithComparingEverything) {
  SCOPED_TRACE(test::Seed());
  std::mt19937 random(test::Seed());
  const auto range = [&]() -> ByteRange {
    const uint64_t begin = random() % 2000;
    return {begin, begin + 1 + random() % 20};
  };
  int settled_count = 0;
  for (int round = 0; round < 2000; ++round) {
    WritesInFlight writes;
    std::vector<ByteRange> in_flight(random() % 12);
    for (ByteRange& written : in_flight) Add(writes, written = range());
    std::vector<TestOp> ops(random() % 4 + 1);
    for (TestOp& op : ops) {
      for (size_t i = random() % 3; i > 0; --i) op.written.push_back(range());
      for (size_t i = random() % 3; i > 0; --i) op.early.push_back(range());
    }
    bool want = true;
    for (size_t i = 0; i < ops.size(); ++i) {
      for (const ByteRange& early : ops[i].early) {
        for (const ByteRange& written : in_flight) want &= !written.Overlaps(early);
        for (size_t j = 0; j < ops.size(); ++j) {
          for (const ByteRange& written : ops[j].written)
            want &= i == j || !written.Overlaps(early);
        }
      }
    }
    ASSERT_EQ(Ready(writes, ops), want) << "round " << round;
    settled_count += want;
  }
  EXPECT_GT(settled_count, 500);
  EXPECT_LT(settled_count, 1900);
}

// Of many that come and go, each counts from Add to Remove.
TEST(HazardsTest, AgreesWithComparingEverythingAsWritesComeAndGo) {
  SCOPED_TRACE(test::Seed());
  std::mt19937 random(test::Seed());
  const auto range = [&]() -> ByteRange {
    const uint64_t begin = random() % 1'000'000;
    return {begin, begin + 1 + random() % 1000};
  };
  struct Write {
    ByteRange range;
    WritesInFlight::Slots slots;
  };
  WritesInFlight writes;
  std::vector<Write> in_flight;
  int settled_count = 0;
  for (int round = 0; round < 5000; ++round) {
    const bool grows = random() % 1000 >= in_flight.size();  // to some 500
    if (grows || in_flight.empty()) {
      const ByteRange written = range();
      in_flight.push_back({written, Add(writes, written)});
    } else {
      std::swap(in_flight[random() % in_flight.size()], in_flight.back());
      writes.Remove(in_flight.back().slots);
      in_flight.pop_back();
    }
    const ByteRange early = range();
    const bool want = std::none_of(in_flight.begin(), in_flight.end(),
                                   [&](const Write& write) { return write.range.Overlaps(early); });
    ASSERT_EQ(Ready(writes, {{.written = {}, .early = {early}}}), want) << "round " << round;
    settled_count += want;
  }
  EXPECT_GT(settled_count, 1000);
  EXPECT_LT(settled_count, 4500);
}

}  // namespace
}  // namespace concert::daemon
