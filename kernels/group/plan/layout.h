// Turns chosen options into the items of a work list: which block does which tile, in which order.
#ifndef CONCERT_KERNELS_GROUP_PLAN_LAYOUT_H_
#define CONCERT_KERNELS_GROUP_PLAN_LAYOUT_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/group/plan/cost.h"
#include "kernels/group/plan/packing.h"
#include "kernels/group/plan/search.h"
#include "kernels/group/plan/work_list.h"

namespace concert::kernels {

// What is laid out. `members`: problem indices, set by set, ascending within each.
struct Launch {
  std::span<const ShapeSet> sets;
  std::span<const uint16_t> packing_order;  // of the sets: longest items first
  std::span<const uint16_t> members;
  double hbm_bytes = 0;
  LaunchBlocks blocks;
  policies::GroupGoal goal = policies::GroupGoal::kLatency;
};

// First Arrange(), then Write(). Not thread-safe.
//
// In which order a block does its items changes nothing about when it is done, but much about when
// problems are. So problems that need little come before those that need four times as much; among
// those that need about as much, equal tiles follow each other, since changing costs; then it is
// first come, first served. Tiles of one problem go to the blocks in an order in which the tiles in
// work at one time cover about as many rows of W as of A: what they share comes from the L2.
class GroupLayout {
 public:
  // `costs` must outlive this.
  explicit GroupLayout(const GroupCosts& costs);

  // Gives every block its share. How many items the work list has, kEnd items included; 0: more
  // than kMaxGroupItems. `launch` must stay as it is until Write() is done.
  uint32_t Arrange(const Launch& launch);

  // Fills in all of `work_list` but what is the store's: id, slot, first_item, items, tiles and
  // ends_us. `items` has as many as Arrange() said, `ends_us` one per problem.
  void Write(GroupWorkList& work_list, GroupItem* items, float* ends_us);

 private:
  enum class Balance { kTime, kCount };
  static constexpr size_t kMaxShares = kMaxGroupProblems * (kMaxGroupProblems + 3) / 2;

  // What a block has been given while items are written.
  struct Block {
    double us = 0;
    uint16_t items = 0;
    int8_t tile = -1;
  };
  // How the tiles of a set are split along K, and what each part takes.
  struct Parts {
    std::array<uint16_t, kMaxGroupSplits + 1> k_begin;  // the last one: their end
    std::array<double, kMaxGroupSplits> item_us;
  };
  class TileWalk;

  uint32_t Share(Balance balance);
  std::span<const uint16_t> RunOrder();
  void WriteSet(uint16_t index, GroupItem* items, float* ends_us);
  Parts PartsOf(const policies::Problem& problem, const TileOption& option) const;
  // Returns when the block has done it.
  double GiveItem(int tile, double item_us, Block& block) const;
  void WriteEnds(GroupItem* items) const;
  void Predict(GroupWorkList& work_list, float* ends_us) const;

  const GroupCosts& costs_;
  BlockPacking packing_;
  Launch launch_;
  uint32_t steps_ = 0;  // of the longest list, its kEnd item included
  int used_blocks_ = 0;
  uint16_t split_tiles_ = 0;
  std::vector<BlockShare> shares_;                           // set by set
  std::array<uint32_t, kMaxGroupProblems + 1> first_share_;  // by place in the packing order
  std::array<uint16_t, kMaxGroupProblems> place_;            // of a set in the packing order
  std::array<uint64_t, kMaxGroupProblems> run_keys_;
  std::array<uint16_t, kMaxGroupProblems> run_order_;
  std::vector<Block> blocks_;
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_GROUP_PLAN_LAYOUT_H_
