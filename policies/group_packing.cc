#include "policies/group_packing.h"

#include <algorithm>
#include <limits>

namespace concert::policies {

void BlockPacking::Reset(int blocks) {
  segments_[0] = {.blocks = static_cast<uint16_t>(blocks)};
  count_ = 1;
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
    const double gap = segments_[i + 1].ready_us - segments_[i].ready_us;
    if (gap < least_gap) {
      least_gap = gap;
      closest = i;
    }
  }
  Segment& kept = segments_[closest];
  const Segment& other = segments_[closest + 1];
  const double share = 1.0 * other.blocks / (kept.blocks + other.blocks);
  kept.free_us += (other.free_us - kept.free_us) * share;
  kept.ready_us += (other.ready_us - kept.ready_us) * share;
  kept.blocks = static_cast<uint16_t>(kept.blocks + other.blocks);
  kept.tiles &= other.tiles;
  std::copy(&segments_[closest + 2], &segments_[0] + count_, &segments_[closest + 1]);
  --count_;
}

// Gives every block as many items as end before the level that water would reach: if items could be
// cut, all blocks that get any would end there. Returns how many segments lie below the level.
size_t BlockPacking::Fill(uint32_t& items, double item_us) {
  const double volume = items * item_us;
  double blocks = 0, ready_sum = 0, level = 0;
  size_t touched = 0;
  do {
    const Segment& segment = segments_[touched++];
    blocks += segment.blocks;
    ready_sum += segment.blocks * segment.ready_us;
    level = (volume + ready_sum) / blocks;
  } while (touched < count_ && segments_[touched].ready_us < level);

  constexpr double kRounding = 1e-9;  // keeps the floors' sum from exceeding `items`
  for (size_t i = 0; i < touched; ++i) {
    Segment& segment = segments_[i];
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
    Segment& segment = segments_[i];
    if (segment.blocks > items) {
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
    Segment& segment = segments_[i];
    if (segment.added == 0) continue;
    segment.free_us = segment.ready_us;
    segment.tiles |= tile_bit;
    busiest_us_ = std::max(busiest_us_, segment.free_us);
    used_blocks_ = std::max(used_blocks_, segment.first_block + segment.blocks);
    shares_[share_count_++] = {segment.first_block, segment.blocks, segment.added};
  }
}

// Insertion sort: the segments stay nearly sorted, and equal ones keep their order.
void BlockPacking::SortByReady(size_t count) {
  for (size_t i = 1; i < count; ++i) {
    if (segments_[i - 1].ready_us <= segments_[i].ready_us) continue;
    const Segment moved = segments_[i];
    size_t to = i;
    for (; to > 0 && segments_[to - 1].ready_us > moved.ready_us; --to) {
      segments_[to] = segments_[to - 1];
    }
    segments_[to] = moved;
  }
}

}  // namespace concert::policies
