#include "kernels/group/plan/layout.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace concert::kernels {

// The tiles of one problem, so that any `blocks` tiles in a row cover about as many rows of W as of
// A: bands of W tiles, each walked along A.
class GroupLayout::TileWalk {
 public:
  TileWalk(const policies::Problem& problem, GroupTile tile, int blocks)
      : w_tiles_((problem.n + tile.w_rows - 1) / tile.w_rows),
        a_tiles_((problem.m + tile.a_rows - 1) / tile.a_rows) {
    const double square = std::sqrt(1.0 * blocks * tile.a_rows / tile.w_rows);
    band_ = std::clamp<uint32_t>(static_cast<uint32_t>(square), 1, w_tiles_);
    band_end_ = band_;
  }

  uint16_t w_tile() const { return static_cast<uint16_t>(w_tile_); }
  uint16_t a_tile() const { return static_cast<uint16_t>(a_tile_); }

  void Next() {
    if (++w_tile_ < band_end_) return;
    if (++a_tile_ < a_tiles_) {
      w_tile_ = band_begin_;
      return;
    }
    a_tile_ = 0;
    band_begin_ = band_end_;
    band_end_ = std::min(band_end_ + band_, w_tiles_);
  }

 private:
  uint32_t w_tiles_, a_tiles_, band_ = 1;
  uint32_t band_begin_ = 0, band_end_ = 0;
  uint32_t w_tile_ = 0, a_tile_ = 0;
};

GroupLayout::GroupLayout(const GroupCosts& costs)
    : costs_(costs),
      packing_(costs.tile_change_us()),
      shares_(kMaxShares),
      blocks_(kMaxGroupItems) {}

uint32_t GroupLayout::Arrange(const Launch& launch) {
  launch_ = launch;
  for (const Balance balance : {Balance::kTime, Balance::kCount}) {
    // A few long items beside many short ones can make lists too uneven for the table of items.
    const uint32_t items = Share(balance);
    if (items <= kMaxGroupItems) return items;
  }
  return 0;
}

uint32_t GroupLayout::Share(Balance balance) {
  LaunchBlocks blocks = launch_.blocks;
  if (balance == Balance::kCount) blocks.late_us = 0;
  packing_.Reset(blocks);
  std::fill_n(blocks_.begin(), blocks.count, Block());
  uint32_t share_count = 0, place = 0;
  for (const uint16_t index : launch_.packing_order) {
    const ShapeSet& c = launch_.sets[index];
    const TileOption& option = c.chosen();
    const bool by_time = balance == Balance::kTime;
    packing_.Add(option.items() * c.problems, by_time ? option.item_us : 1,
                 by_time ? option.tile : 0);
    place_[index] = static_cast<uint16_t>(place);
    first_share_[place++] = share_count;
    for (const BlockShare& share : packing_.shares()) {
      shares_[share_count++] = share;
      for (int b = share.first_block; b < share.first_block + share.blocks; ++b) {
        blocks_[b].items = static_cast<uint16_t>(blocks_[b].items + share.items_per_block);
      }
    }
  }
  first_share_[place] = share_count;
  used_blocks_ = packing_.used_blocks();
  steps_ = 0;
  for (int b = 0; b < used_blocks_; ++b) steps_ = std::max<uint32_t>(steps_, blocks_[b].items + 1);
  return steps_ * used_blocks_;
}

void GroupLayout::Write(GroupWorkList& work_list, GroupItem* items, float* ends_us) {
  const LaunchBlocks& blocks = launch_.blocks;
  for (int b = 0; b < used_blocks_; ++b) {
    blocks_[b] = {.us = b < blocks.count - blocks.late ? 0 : blocks.late_us};
  }
  split_tiles_ = 0;
  for (const uint16_t index : RunOrder()) WriteSet(index, items, ends_us);
  WriteEnds(items);

  work_list.blocks = static_cast<uint16_t>(used_blocks_);
  work_list.problem_count = static_cast<uint16_t>(launch_.members.size());
  work_list.item_count = steps_ * used_blocks_;
  Predict(work_list, ends_us);
}

std::span<const uint16_t> GroupLayout::RunOrder() {
  const size_t count = launch_.sets.size();
  for (size_t i = 0; i < count; ++i) {
    const TileOption& option = launch_.sets[i].chosen();
    const float alone_us =
        std::max(option.item_us, option.work_us / static_cast<float>(launch_.blocks.count));
    constexpr int kShift = 24;  // leaves the exponent but its last bit: steps of a factor of four
    const uint64_t magnitude = std::bit_cast<uint32_t>(alone_us) >> kShift;
    run_keys_[i] = magnitude << 32 | uint64_t{option.tile} << 16 | i;
  }
  std::sort(run_keys_.begin(), run_keys_.begin() + count);
  for (size_t i = 0; i < count; ++i) run_order_[i] = static_cast<uint16_t>(run_keys_[i]);
  return {run_order_.data(), count};
}

void GroupLayout::WriteSet(uint16_t index, GroupItem* items, float* ends_us) {
  const ShapeSet& c = launch_.sets[index];
  const TileOption& option = c.chosen();
  const GroupTile tile = costs_.shapes()[option.tile];
  const Parts parts = PartsOf(c.shape->problem, option);
  const uint16_t* member = &launch_.members[c.first_member];
  const int last_a_tile = static_cast<int>((c.shape->problem.m - 1) / tile.a_rows);
  const int tail_rows = TailRows(costs_.shapes(), tile, c.shape->problem.m);
  const auto tail_rows_div_16 = static_cast<uint8_t>(tail_rows == tile.a_rows ? 0 : tail_rows / 16);
  const TileWalk from_first(c.shape->problem, tile, used_blocks_);
  TileWalk walk = from_first;
  uint32_t tiles_left = option.tiles, split = 0;
  double end_us = 0;  // of the problem
  const std::span<const BlockShare> shares(&shares_[first_share_[place_[index]]],
                                           &shares_[first_share_[place_[index] + 1]]);
  uint32_t rounds = 0;
  for (const BlockShare& share : shares) rounds = std::max(rounds, share.items_per_block);
  for (uint32_t round = 0; round < rounds; ++round) {
    for (const BlockShare& share : shares) {
      if (round >= share.items_per_block) continue;
      for (int b = share.first_block; b < share.first_block + share.blocks; ++b) {
        items[blocks_[b].items * used_blocks_ + b] = {
            .problem = *member,
            .w_rows_div_64 = static_cast<uint8_t>(tile.w_rows / 64),
            .tail_rows_div_16 = walk.a_tile() == last_a_tile ? tail_rows_div_16 : uint8_t{0},
            .a_rows_div_16 = static_cast<uint8_t>(tile.a_rows / 16),
            .w_tile = walk.w_tile(),
            .a_tile = walk.a_tile(),
            .k_begin = parts.k_begin[split],
            .k_end = parts.k_begin[split + 1],
            .splits = option.splits,
            .split = static_cast<uint8_t>(split),
            .split_tile = option.splits > 1 ? split_tiles_ : uint16_t{0}};
        end_us = std::max(end_us, GiveItem(option.tile, parts.item_us[split], blocks_[b]));
        if (++split < option.splits) continue;
        split = 0;
        if (option.splits > 1) ++split_tiles_;
        walk.Next();
        if (--tiles_left > 0) continue;
        ends_us[*member++] = static_cast<float>(end_us);
        tiles_left = option.tiles;
        end_us = 0;
        walk = from_first;
      }
    }
  }
}

GroupLayout::Parts GroupLayout::PartsOf(const policies::Problem& problem,
                                        const TileOption& option) const {
  const uint32_t k_blocks = KBlocks(problem);
  const GroupRows rows = RowsOf(problem);
  Parts parts;
  parts.k_begin[0] = 0;
  for (uint32_t split = 0; split < option.splits; ++split) {
    const auto end = static_cast<uint16_t>(uint64_t{k_blocks} * (split + 1) / option.splits);
    parts.item_us[split] =
        costs_.ItemUs(option.tile, rows, end - parts.k_begin[split], option.splits > 1);
    parts.k_begin[split + 1] = end;
  }
  return parts;
}

double GroupLayout::GiveItem(int tile, double item_us, Block& block) const {
  if (block.tile >= 0 && block.tile != tile) block.us += costs_.tile_change_us();
  block.us += item_us;
  block.tile = static_cast<int8_t>(tile);
  ++block.items;
  return block.us;
}

void GroupLayout::WriteEnds(GroupItem* items) const {
  GroupItem end = {};
  end.problem = GroupItem::kEnd;
  for (int b = 0; b < used_blocks_; ++b) {
    for (uint32_t step = blocks_[b].items; step < steps_; ++step) {
      items[step * used_blocks_ + b] = end;
    }
  }
}

// A launch that HBM holds back takes longer than its busiest block works: all ends stretch alike.
void GroupLayout::Predict(GroupWorkList& work_list, float* ends_us) const {
  LaunchTotals totals;
  for (const ShapeSet& c : launch_.sets) totals.Add(c.chosen(), c.problems, costs_);
  work_list.split_tiles = split_tiles_;
  work_list.max_splits = static_cast<uint16_t>(totals.max_splits);
  work_list.partial_bytes = totals.partial_bytes;

  double busiest_us = 0;
  for (int b = 0; b < used_blocks_; ++b) busiest_us = std::max(busiest_us, blocks_[b].us);
  const double crowding = GroupCosts::Crowding(used_blocks_, launch_.blocks.count);
  const double us = GroupCosts::Us(
      costs_.Score({.busiest_us = busiest_us,
                    .mean_us = (totals.work_us + launch_.blocks.lost_us()) / launch_.blocks.count,
                    .bytes = launch_.hbm_bytes,
                    .split_us = totals.split_us,
                    .launch_crowding = crowding,
                    .memory_crowding = crowding},
                   launch_.goal));
  const double stretch = (us - costs_.launch_us()) / busiest_us;
  work_list.predicted_us = static_cast<float>(us);
  for (size_t i = 0; i < launch_.members.size(); ++i) {
    ends_us[i] = static_cast<float>(costs_.launch_us() + ends_us[i] * stretch);
  }
}

}  // namespace concert::kernels
