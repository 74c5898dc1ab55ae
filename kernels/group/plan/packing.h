// Which block does how many items of which problems: longest items first, each to the block that is
// free first, done for all items of one length at once.
#ifndef CONCERT_KERNELS_GROUP_PLAN_PACKING_H_
#define CONCERT_KERNELS_GROUP_PLAN_PACKING_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/group/plan/work_list.h"

namespace concert::kernels {

// The blocks of a launch, of which the last `late` begin late_us after the others.
struct LaunchBlocks {
  int count = 1;
  int late = 0;
  float late_us = 0;

  // What late blocks cannot do meanwhile.
  double lost_us() const { return double{late_us} * late; }
  friend bool operator==(const LaunchBlocks&, const LaunchBlocks&) = default;
};

// Blocks [first_block, first_block + blocks) do items_per_block items each.
struct BlockShare {
  uint16_t first_block = 0;
  uint16_t blocks = 0;
  uint32_t items_per_block = 0;
};

// Blocks that got the same items are one segment of consecutive blocks, so that Add() costs time
// per segment, not per block or item; it makes at most one segment more. Not thread-safe.
class BlockPacking {
 public:
  static constexpr size_t kMaxSegments = kMaxGroupProblems + 2;  // two to begin with

  // With more than `max_segments`, those whose blocks are free at about the same time become one:
  // busiest_us() is then a close estimate, and shares() mean nothing.
  explicit BlockPacking(double tile_change_us, size_t max_segments = kMaxSegments)
      : tile_change_us_(tile_change_us), max_segments_(max_segments) {}

  // Forgets all items. REQUIRES: 1 to 65535 blocks, of which some are not late.
  void Reset(const LaunchBlocks& blocks);

  // Gives `items` items of `item_us` each to the blocks that are free first. A block pays once for
  // each further tile that it works with. REQUIRES: at most kMaxGroupProblems calls per Reset();
  // items and item_us > 0.
  void Add(uint32_t items, double item_us, int tile);

  // Which blocks got the items of the last Add(); each block at most once. Valid until the next.
  std::span<const BlockShare> shares() const { return {shares_.data(), share_count_}; }
  double busiest_us() const { return busiest_us_; }
  // Blocks that have items: the first ones.
  int used_blocks() const { return used_blocks_; }

 private:
  struct Segment {
    double free_us = 0;   // when its blocks have done what they have
    double ready_us = 0;  // when they could begin with another item of what is being added
    uint32_t added = 0;   // items per block in this Add()
    uint16_t first_block = 0;
    uint16_t blocks = 0;
    uint16_t tiles = 0;  // that its blocks work with, as bits
  };
  static_assert(std::size(kGroupTiles) <= 16);

  void MakeReady(uint16_t tile_bit);
  void MergeClosest();
  size_t Fill(uint32_t& items, double item_us);
  void GiveRest(uint32_t& items, double item_us, size_t touched);
  void Commit(uint16_t tile_bit);
  void SortByReady(size_t count);
  Segment& ByReady(size_t place) { return segments_[by_ready_[place] & kIndexMask]; }

  // Of by_ready_: the index of a segment, in the last bits of its ready_us, which is not negative,
  // so that its bits order it. They are the last 9 of 52: far less than is known of any time.
  static constexpr uint64_t kIndexMask = 511;
  static_assert(kMaxSegments <= kIndexMask + 1);

  const double tile_change_us_;
  const size_t max_segments_;
  std::array<Segment, kMaxSegments> segments_;
  std::array<uint64_t, kMaxSegments> by_ready_;  // all segments, the first to be ready first
  size_t count_ = 0;
  std::array<BlockShare, kMaxSegments> shares_;
  size_t share_count_ = 0;
  double busiest_us_ = 0;
  int used_blocks_ = 0;
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_GROUP_PLAN_PACKING_H_
