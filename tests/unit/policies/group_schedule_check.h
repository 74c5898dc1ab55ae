// Whether a schedule is one that a device may run: complete, exact and within every limit.
#ifndef CONCERT_TESTS_UNIT_POLICIES_GROUP_SCHEDULE_CHECK_H_
#define CONCERT_TESTS_UNIT_POLICIES_GROUP_SCHEDULE_CHECK_H_

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

#include "policies/group_cost.h"
#include "policies/group_schedule.h"

namespace concert::policies {

// The items of each block, in order; fails if a list is not ended.
inline std::vector<std::vector<GroupItem>> BlockLists(const GroupSchedule& schedule) {
  std::vector<std::vector<GroupItem>> lists(schedule.blocks);
  const uint32_t steps = schedule.item_count / schedule.blocks;
  EXPECT_EQ(schedule.item_count, steps * schedule.blocks);
  for (int b = 0; b < schedule.blocks; ++b) {
    bool ended = false;
    for (uint32_t step = 0; step < steps; ++step) {
      const GroupItem& item = schedule.items[step * schedule.blocks + b];
      if (item.problem == GroupItem::kEnd) ended = true;
      if (!ended) lists[b].push_back(item);
    }
    EXPECT_TRUE(ended) << "block " << b;
    EXPECT_FALSE(lists[b].empty()) << "block " << b << " has nothing to do";
  }
  return lists;
}

inline void CheckItem(const GroupSchedule& schedule, std::span<const Problem> problems,
                      const GroupItem& item) {
  ASSERT_LT(item.problem, problems.size());
  const Problem& problem = problems[item.problem];
  const GroupTile tile = schedule.tiles[item.problem];
  if (schedule.kind == GroupBlocks::kPairs) {
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
  ASSERT_LE(item.splits, schedule.max_splits);
  ASSERT_LT(item.split, item.splits);
  if (item.splits > 1) {
    ASSERT_LT(item.split_tile, schedule.split_tiles);
    ASSERT_LE(tile.w_rows * tile.a_rows * sizeof(float), schedule.partial_bytes);
  }
}

// Every tile of every problem is there, and its parts cover K exactly, in the order of `split`.
inline void CheckCoverage(const GroupSchedule& schedule, std::span<const Problem> problems) {
  using Tile = std::tuple<uint16_t, uint16_t, uint16_t>;
  std::map<Tile, std::map<int, GroupItem>> parts;
  for (const auto& list : BlockLists(schedule)) {
    for (const GroupItem& item : list) {
      CheckItem(schedule, problems, item);
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
  ASSERT_EQ(split_tiles.size(), schedule.split_tiles);
  for (size_t i = 0; i < problems.size(); ++i) {
    const GroupTile tile = schedule.tiles[i];
    const uint64_t w_tiles = (uint64_t{problems[i].n} + tile.w_rows - 1) / tile.w_rows;
    const uint64_t a_tiles = (uint64_t{problems[i].m} + tile.a_rows - 1) / tile.a_rows;
    ASSERT_EQ(tiles[i], w_tiles * a_tiles) << "problem " << i;
  }
}

inline void CheckSchedule(const GroupSchedule& schedule, std::span<const Problem> problems,
                          int blocks) {
  ASSERT_NE(schedule.id, 0u);
  ASSERT_LT(schedule.slot, kGroupScheduleSlots);
  ASSERT_EQ(schedule.problem_count, problems.size());
  ASSERT_GE(schedule.blocks, 1);
  ASSERT_LE(schedule.grid(), blocks);
  ASSERT_LE(schedule.item_count, static_cast<uint32_t>(kMaxGroupItems));
  ASSERT_LE(uint64_t{schedule.first_item} + schedule.item_count, kGroupArenaItems);
  ASSERT_LE(schedule.split_tiles * schedule.grid() / schedule.blocks, kMaxGroupSplitTiles);
  ASSERT_LE(schedule.max_splits, kMaxGroupSplits);
  ASSERT_LE(uint64_t{schedule.max_splits} * schedule.split_tiles * schedule.partial_bytes,
            kGroupPartialBytes);
  CheckCoverage(schedule, problems);
  if (testing::Test::HasFatalFailure()) return;
  ASSERT_TRUE(std::isfinite(schedule.predicted_us));
  const float last = *std::max_element(schedule.ends_us, schedule.ends_us + problems.size());
  ASSERT_NEAR(last, schedule.predicted_us, 1e-3f * schedule.predicted_us);
  ASSERT_GT(*std::min_element(schedule.ends_us, schedule.ends_us + problems.size()), 0);
}

}  // namespace concert::policies

#endif  // CONCERT_TESTS_UNIT_POLICIES_GROUP_SCHEDULE_CHECK_H_
