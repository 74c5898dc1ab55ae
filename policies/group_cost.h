// What a group launch costs: one item on a block, and the launch as a whole.
#ifndef CONCERT_POLICIES_GROUP_COST_H_
#define CONCERT_POLICIES_GROUP_COST_H_

#include <array>
#include <cstdint>
#include <iterator>

#include "policies/group_schedule.h"
#include "policies/tuned_table.h"

namespace concert::policies {

inline constexpr int kGroupTileCount = std::size(kGroupTiles);

// Everything to be fitted, in one place. The values are those of the kernel's prototype on an H200
// (132 SMs, bf16), where the time of a stage was within about 10 % of measured.
struct GroupCostConstants {
  // One stage of the ring: kGroupBlockKBytes of K. The tensor cores take as long for 128 fp8 as
  // for 64 bf16, so that these hold for every dtype.
  double stage_us = 0.03;
  double stage_us_per_a_row_w128 = 0.0027;
  double stage_us_per_a_row_w64 = 0.00135;
  // A block loads at its share of the L2, when all SMs load, or at what it has in flight per
  // latency, if that is less. One SM alone reaches 108e3; eight 512x768x3072 in tiles of 128x64
  // drew 77e3.
  double sm_bytes_per_us = 78e3;
  double load_latency_us = 1.75;
  uint32_t ring_bytes = 192 << 10;
  uint32_t ring_stages = 12;
  // One item: filling the ring, epilogue and store.
  double item_us = 1.0;
  double item_us_per_a_row = 0.004;
  // The ring drains when a block goes on with another tile.
  double tile_change_us = 1.2;
  // A part of a split tile: its sums go to the workspace, and the last part adds them.
  double split_us = 2.5;
  double split_bytes_per_us = 60e3;
  // Whole launches: besides the busiest block, and of those that HBM bounds.
  double launch_us = 2.0;
  double memory_launch_us = 2.1;
  double hbm_bytes_per_us = 3.7e6;
  // Launches that copy operands first (Work::repack_bytes): another launch, and what a kernel that
  // only reads and writes moves. Estimates.
  double repack_launch_us = 2.0;
  double repack_bytes_per_us = 2.5e6;
};

// What copying `bytes` adds to a group launch. 0: nothing is launched.
inline float GroupRepackUs(uint64_t bytes, const GroupCostConstants& constants = {}) {
  if (bytes == 0) return 0;
  const double copy_us = 2 * static_cast<double>(bytes) / constants.repack_bytes_per_us;
  return static_cast<float>(constants.repack_launch_us + copy_us);
}

// The formulas over the constants. Immutable.
class GroupCosts {
 public:
  explicit GroupCosts(const GroupCostConstants& constants = {});

  struct Tile {
    double stage_us = 0;  // of kGroupBlockKBytes of K
    double item_us = 0;   // of an item besides its stages
    double split_us = 0;  // more, of an item that is part of a split tile
    uint32_t partial_bytes = 0;
  };
  // `tile` is an index into kGroupTiles.
  const Tile& tile(int tile) const { return tiles_[tile]; }
  double tile_change_us() const { return constants_.tile_change_us; }

  // Time of one item. A split tile's parts all pay for the reduction.
  double ItemUs(int tile, uint32_t k_blocks, bool split) const {
    const Tile& costs = tiles_[tile];
    return k_blocks * costs.stage_us + costs.item_us + (split ? costs.split_us : 0);
  }

  // Orders launches by their time: of one whose busiest block works `busiest_us`, that moves
  // `bytes` through HBM and whose dearest reduction takes `split_us`. The sum of the sixth powers
  // of both bounds: their maximum, rounded where they meet. The power is the prototype's choice,
  // not a fit.
  double Score(double busiest_us, double bytes, double split_us) const {
    return Pow6(busiest_us + constants_.launch_us) + Pow6(MemoryUs(bytes) + split_us);
  }
  static double Us(double score);  // the time of that launch
  double launch_us() const { return constants_.launch_us; }

 private:
  static double Pow6(double x) { return x * x * x * (x * x * x); }
  double MemoryUs(double bytes) const {
    return constants_.memory_launch_us + bytes / constants_.hbm_bytes_per_us;
  }

  GroupCostConstants constants_;
  std::array<Tile, kGroupTileCount> tiles_;
};

// Stages of a problem's K: units of kGroupBlockKBytes.
inline uint32_t KBlocks(const Problem& problem) {
  const uint64_t bytes = uint64_t{problem.k} * DtypeBytes(problem.dtype);
  return static_cast<uint32_t>((bytes + kGroupBlockKBytes - 1) / kGroupBlockKBytes);
}

// Bytes through HBM: A and W read once, D written once as 16-bit values.
double HbmBytes(const Problem& problem);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_GROUP_COST_H_
