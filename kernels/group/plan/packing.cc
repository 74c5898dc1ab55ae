#include "kernels/group/plan/packing.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace concert::kernels {

void BlockPacking::Reset(const LaunchBlocks& blocks) {
  const auto early = static_cast<uint16_t>(blocks.count - blocks.late);
  segments_[0] = {.blocks = early};
  segments_[1] = {.free_us = blocks.late_us,
                  .first_block = early,
                  .blocks = static_cast<uint16_t>(blocks.late)};
  by_ready_[0] = 0;
  by_ready_[1] = 1;
  count_ = blocks.late > 0 ? 2 : 1;
  share_count_ = 0;
  busiest_us_ = 0;
  used_blocks_ = 0;
}

void BlockPacking::Add(uint32_t items, double item_us, int tile) {
  const auto tile_bit = static_cast<uint16_t>(1u << tile);
  MakeReady(tile_bit);
  if (count_ > max_segments_) MergeClosest();
  const size_t touched = Fill(items, item_us);
  // Once is enough but for rounding: what Fill() leaves is less than one item per block.
  while (items > 0) GiveRest(items, item_us, touched);
  Commit(tile_bit);
}

void BlockPacking::MakeReady(uint16_t tile_bit) {
  for (size_t i = 0; i < count_; ++i) {
    Segment& segment = segments_[i];
    const bool changes = segment.tiles != 0 && (segment.tiles & tile_bit) == 0;
    segment.ready_us = segment.free_us + (changes ? tile_change_us_ : 0);
    segment.added = 0;
  }
  SortByReady(count_);
}

void BlockPacking::MergeClosest() {
  size_t closest = 0;
  double least_gap = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i + 1 < count_; ++i) {
    const double gap = ByReady(i + 1).ready_us - ByReady(i).ready_us;
    if (gap < least_gap) {
      least_gap = gap;
      closest = i;
    }
  }
  Segment& kept = ByReady(closest);
  Segment& other = ByReady(closest + 1);
  const double share = 1.0 * other.blocks / (kept.blocks + other.blocks);
  kept.free_us += (other.free_us - kept.free_us) * share;
  kept.ready_us += (other.ready_us - kept.ready_us) * share;
  kept.blocks = static_cast<uint16_t>(kept.blocks + other.blocks);
  kept.tiles &= other.tiles;
  // The last segment moves to the place of the one that is gone.
  const uint64_t gone = by_ready_[closest + 1] & kIndexMask, last = count_ - 1;
  std::copy(&by_ready_[closest + 2], &by_ready_[0] + count_, &by_ready_[closest + 1]);
  --count_;
  if (gone == last) return;
  segments_[gone] = segments_[last];
  for (size_t i = 0; i < count_; ++i) {
    if ((by_ready_[i] & kIndexMask) == last) by_ready_[i] = (by_ready_[i] & ~kIndexMask) | gone;
  }
}

// Gives every block as many items as end before the level that water would reach: if items could be
// cut, all blocks that get any would end there. Returns how many segments lie below the level.
size_t BlockPacking::Fill(uint32_t& items, double item_us) {
  const double volume = items * item_us;
  double blocks = 0, ready_sum = 0, level = 0;
  size_t touched = 0;
  do {
    const Segment& segment = ByReady(touched++);
    blocks += segment.blocks;
    ready_sum += segment.blocks * segment.ready_us;
    level = (volume + ready_sum) / blocks;
  } while (touched < count_ && ByReady(touched).ready_us < level);

  constexpr double kRounding = 1e-9;  // keeps the floors' sum from exceeding `items`
  for (size_t i = 0; i < touched; ++i) {
    Segment& segment = ByReady(i);
    const double whole = (level - segment.ready_us) / item_us - kRounding;
    if (whole < 1) continue;
    segment.added = std::min(static_cast<uint32_t>(whole), items / segment.blocks);
    segment.ready_us += segment.added * item_us;
    items -= segment.added * segment.blocks;
  }
  return touched;
}

// One item more for each block below the level, the first to be free first.
void BlockPacking::GiveRest(uint32_t& items, double item_us, size_t touched) {
  SortByReady(touched);
  for (size_t i = 0; i < touched && items > 0; ++i) {
    Segment& segment = ByReady(i);
    if (segment.blocks > items) {
      by_ready_[count_] = count_;  // its time follows with the next sort
      Segment& others = segments_[count_++];
      others = segment;
      others.first_block = static_cast<uint16_t>(segment.first_block + items);
      others.blocks = static_cast<uint16_t>(segment.blocks - items);
      segment.blocks = static_cast<uint16_t>(items);
    }
    ++segment.added;
    segment.ready_us += item_us;
    items -= segment.blocks;
  }
}

void BlockPacking::Commit(uint16_t tile_bit) {
  share_count_ = 0;
  for (size_t i = 0; i < count_; ++i) {
    Segment& segment = ByReady(i);
    if (segment.added == 0) continue;
    segment.free_us = segment.ready_us;
    segment.tiles |= tile_bit;
    busiest_us_ = std::max(busiest_us_, segment.free_us);
    used_blocks_ = std::max(used_blocks_, segment.first_block + segment.blocks);
    shares_[share_count_++] = {segment.first_block, segment.blocks, segment.added};
  }
}

// Brings the first `count` of by_ready_ up to date. Insertion sort: they stay nearly sorted.
void BlockPacking::SortByReady(size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const uint64_t index = by_ready_[i] & kIndexMask;
    const uint64_t key = (std::bit_cast<uint64_t>(segments_[index].ready_us) & ~kIndexMask) | index;
    size_t to = i;
    for (; to > 0 && by_ready_[to - 1] > key; --to) by_ready_[to] = by_ready_[to - 1];
    by_ready_[to] = key;
  }
}

}  // namespace concert::kernels
