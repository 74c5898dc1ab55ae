// Whether a work list is one that a device may run: complete, exact and within every limit.
#ifndef CONCERT_TESTS_UNIT_KERNELS_GROUP_WORK_LIST_CHECK_H_
#define CONCERT_TESTS_UNIT_KERNELS_GROUP_WORK_LIST_CHECK_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "kernels/group/plan/cost.h"
#include "kernels/group/plan/work_list.h"

namespace concert::kernels {

// The items of each block, in order; fails if a list is not ended or, unless `some_idle`, is empty.
inline std::vector<std::vector<GroupItem>> BlockLists(const GroupWorkList& work_list,
                                                      bool some_idle = false) {
  std::vector<std::vector<GroupItem>> lists(work_list.blocks);
  const uint32_t steps = work_list.item_count / work_list.blocks;
  EXPECT_EQ(work_list.item_count, steps * work_list.blocks);
  for (int b = 0; b < work_list.blocks; ++b) {
    bool ended = false;
    for (uint32_t step = 0; step < steps; ++step) {
      const GroupItem& item = work_list.items[step * work_list.blocks + b];
      if (item.problem == GroupItem::kEnd) ended = true;
      if (!ended) lists[b].push_back(item);
    }
    EXPECT_TRUE(ended) << "block " << b;
    EXPECT_TRUE(some_idle || !lists[b].empty()) << "block " << b << " has nothing to do";
  }
  return lists;
}

inline void CheckItem(const GroupWorkList& work_list, std::span<const policies::Problem> problems,
                      const GroupItem& item) {
  ASSERT_LT(item.problem, problems.size());
  const policies::Problem& problem = problems[item.problem];
  const GroupTile tile = work_list.tiles[item.problem];
  if (work_list.kind == GroupBlocks::kPairs) {
    ASSERT_THAT(kGroupPairTiles, testing::Contains(tile));
  } else {
    ASSERT_THAT(kGroupTiles, testing::Contains(tile));
  }
  ASSERT_EQ(item.w_rows_div_64 * 64, tile.w_rows);
  ASSERT_EQ(item.a_rows_div_16 * 16, tile.a_rows);
  ASSERT_LT(uint64_t{item.w_tile} * tile.w_rows, problem.n);
  ASSERT_LT(uint64_t{item.a_tile} * tile.a_rows, problem.m);
  const uint32_t rows = item.tail_rows_div_16 == 0 ? tile.a_rows : item.tail_rows_div_16 * 16;
  ASSERT_GE(rows, std::min<uint32_t>(tile.a_rows, problem.m - item.a_tile * tile.a_rows));
  ASSERT_LE(rows, tile.a_rows);
  ASSERT_LT(item.k_begin, item.k_end);
  ASSERT_LE(item.k_end, KBlocks(problem));
  ASSERT_GE(item.splits, 1);
  ASSERT_LE(item.splits, work_list.max_splits);
  ASSERT_LT(item.split, item.splits);
  if (item.splits > 1) {
    ASSERT_LT(item.split_tile, work_list.split_tiles);
    ASSERT_LE(tile.w_rows * tile.a_rows * sizeof(float), work_list.partial_bytes);
  }
}

// Every tile of every problem is there, and its parts cover K exactly, in the order of `split`.
inline void CheckCoverage(const GroupWorkList& work_list,
                          std::span<const policies::Problem> problems, bool some_idle = false) {
  using Tile = std::tuple<uint16_t, uint16_t, uint16_t>;
  std::map<Tile, std::map<int, GroupItem>> parts;
  for (const auto& list : BlockLists(work_list, some_idle)) {
    for (const GroupItem& item : list) {
      CheckItem(work_list, problems, item);
      if (testing::Test::HasFatalFailure()) return;
      auto& by_split = parts[Tile(item.problem, item.w_tile, item.a_tile)];
      ASSERT_TRUE(by_split.emplace(item.split, item).second);
    }
  }
  std::vector<uint64_t> tiles(problems.size());
  std::set<int> split_tiles;
  for (const auto& [tile, by_split] : parts) {
    const GroupItem& first = by_split.begin()->second;
    ++tiles[first.problem];
    ASSERT_EQ(by_split.size(), first.splits);
    uint32_t k = 0;
    for (const auto& [split, item] : by_split) {
      ASSERT_EQ(item.splits, first.splits);
      ASSERT_EQ(item.split_tile, first.split_tile);
      ASSERT_EQ(item.k_begin, k);
      k = item.k_end;
    }
    ASSERT_EQ(k, KBlocks(problems[first.problem]));
    if (first.splits > 1) {
      ASSERT_TRUE(split_tiles.insert(first.split_tile).second);
    }
  }
  ASSERT_EQ(split_tiles.size(), work_list.split_tiles);
  for (size_t i = 0; i < problems.size(); ++i) {
    const GroupTile tile = work_list.tiles[i];
    const uint64_t w_tiles = (uint64_t{problems[i].n} + tile.w_rows - 1) / tile.w_rows;
    const uint64_t a_tiles = (uint64_t{problems[i].m} + tile.a_rows - 1) / tile.a_rows;
    ASSERT_EQ(tiles[i], w_tiles * a_tiles) << "problem " << i;
  }
}

inline void CheckWorkList(const GroupWorkList& work_list,
                          std::span<const policies::Problem> problems, int blocks,
                          bool some_idle = false) {
  ASSERT_NE(work_list.id, 0u);
  ASSERT_LT(work_list.slot, kWorkListSlots);
  ASSERT_EQ(work_list.problem_count, problems.size());
  ASSERT_GE(work_list.blocks, 1);
  ASSERT_LE(work_list.grid(), blocks);
  ASSERT_LE(work_list.item_count, static_cast<uint32_t>(kMaxGroupItems));
  ASSERT_LE(uint64_t{work_list.first_item} + work_list.item_count, kGroupArenaItems);
  ASSERT_LE(work_list.split_tiles * work_list.grid() / work_list.blocks, kMaxGroupSplitTiles);
  ASSERT_LE(work_list.max_splits, kMaxGroupSplits);
  ASSERT_LE(uint64_t{work_list.max_splits} * work_list.split_tiles * work_list.partial_bytes,
            kGroupPartialBytes);
  CheckCoverage(work_list, problems, some_idle);
  if (testing::Test::HasFatalFailure()) return;
  ASSERT_TRUE(std::isfinite(work_list.predicted_us));
  const float last = *std::max_element(work_list.ends_us, work_list.ends_us + problems.size());
  ASSERT_NEAR(last, work_list.predicted_us, 1e-3f * work_list.predicted_us);
  ASSERT_GT(*std::min_element(work_list.ends_us, work_list.ends_us + problems.size()), 0);
}

}  // namespace concert::kernels

#endif  // CONCERT_TESTS_UNIT_KERNELS_GROUP_WORK_LIST_CHECK_H_
