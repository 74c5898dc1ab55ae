#include "kernels/group/plan/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <queue>
#include <random>
#include <vector>

#include "tests/support/seed.h"

namespace concert::kernels {
namespace {

// Item by item: each to the block that is free first.
double OneByOne(std::vector<double>& blocks, uint32_t items, double item_us) {
  std::make_heap(blocks.begin(), blocks.end(), std::greater<>());
  for (uint32_t i = 0; i < items; ++i) {
    std::pop_heap(blocks.begin(), blocks.end(), std::greater<>());
    blocks.back() += item_us;
    std::push_heap(blocks.begin(), blocks.end(), std::greater<>());
  }
  return *std::max_element(blocks.begin(), blocks.end());
}

TEST(BlockPackingTest, PacksAsItemByItem) {
  std::mt19937 random(test::Seed());
  for (int round = 0; round < 200; ++round) {
    const int blocks = 1 + static_cast<int>(random() % 132);
    BlockPacking packing(0);
    packing.Reset({.count = blocks});
    std::vector<double> reference(blocks);
    for (int i = 0; i < 30; ++i) {
      const uint32_t items = 1 + random() % 300;
      const double item_us = 1 + 0.25 * (random() % 100);
      packing.Add(items, item_us, 0);
      uint32_t given = 0;
      for (const BlockShare& share : packing.shares())
        given += share.blocks * share.items_per_block;
      ASSERT_EQ(given, items);
      ASSERT_NEAR(packing.busiest_us(), OneByOne(reference, items, item_us), 1e-6)
          << "seed " << test::Seed() << " round " << round;
    }
  }
}

TEST(BlockPackingTest, ABlockPaysOncePerFurtherTile) {
  BlockPacking packing(1.5);
  packing.Reset({.count = 1});
  packing.Add(2, 10, 0);
  packing.Add(1, 5, 3);
  packing.Add(1, 5, 0);
  EXPECT_DOUBLE_EQ(packing.busiest_us(), 20 + 1.5 + 5 + 5);
}

TEST(BlockPackingTest, UsesTheFirstBlocks) {
  BlockPacking packing(0);
  packing.Reset({.count = 132});
  packing.Add(3, 10, 0);
  packing.Add(4, 5, 0);
  EXPECT_EQ(packing.used_blocks(), 7);
  EXPECT_EQ(packing.busiest_us(), 10);
}

TEST(BlockPackingTest, FewSegmentsComeClose) {
  std::mt19937 random(test::Seed());
  BlockPacking exact(1.2), coarse(1.2, 8);
  exact.Reset({.count = 132});
  coarse.Reset({.count = 132});
  for (int i = 0; i < 64; ++i) {
    const uint32_t items = 1 + random() % 200;
    const double item_us = 40 - 0.5 * i;
    exact.Add(items, item_us, 0);
    coarse.Add(items, item_us, 0);
  }
  EXPECT_NEAR(coarse.busiest_us() / exact.busiest_us(), 1, 0.03);
}

}  // namespace
}  // namespace concert::kernels
