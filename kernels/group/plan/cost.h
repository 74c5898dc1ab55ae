// What a group launch costs: one item on a block, and the launch as a whole. Of this kernel only;
// whose the other times are says ADR 24.
#ifndef CONCERT_KERNELS_GROUP_PLAN_COST_H_
#define CONCERT_KERNELS_GROUP_PLAN_COST_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <span>

#include "kernels/group/plan/work_list.h"
#include "policies/seam/work_list.h"

namespace concert::kernels {

inline constexpr int kGroupTileCount = std::size(kGroupTiles);
static_assert(std::size(kGroupPairTiles) <= kGroupTileCount);

// What the length of rows of A and W is a multiple of. A tensor copy fetches 128 bytes of a row at
// a time; of rows that begin elsewhere it asks the L2 for more than it brings.
enum class GroupRows : uint8_t { k128, k64, k32, k16 };
inline constexpr int kGroupRowsCount = 4;

// Rows follow each other without a gap, as those that tuning measures do; of rows that no tensor
// map takes the copies count, whose rows are multiples of 128 bytes.
constexpr GroupRows RowsOf(const policies::Problem& problem) {
  const uint64_t bytes = uint64_t{problem.k} * policies::DtypeBytes(problem.dtype);
  return bytes % 128 == 0 || bytes % 16 != 0 ? GroupRows::k128
         : bytes % 64 == 0                   ? GroupRows::k64
         : bytes % 32 == 0                   ? GroupRows::k32
                                             : GroupRows::k16;
}

// Everything to be fitted, in one place; ADR 14, "What the constants rest on", says to what.
struct GroupCostConstants {
  // One stage of the ring: kGroupBlockKBytes of K. The tensor cores take as long for 128 fp8 as
  // for 64 bf16, so that these hold for every dtype.
  double stage_us = 0.0316;
  double stage_us_per_a_row_w128 = 0.00263;
  double stage_us_per_a_row_w64 = 0.00135;
  // A block loads at its share of the L2, when all SMs load, or at what it has in flight per
  // latency, if that is less. One SM alone reaches 108e3.
  double sm_bytes_per_us = 88e3;
  // The share of that which rows of each length (GroupRows) leave (ADR 17, "Rows").
  std::array<double, kGroupRowsCount> rows_share = {1, 0.85, 0.7, 0.52};
  // A byte of A costs this share of one of W, which comes from HBM.
  double a_byte_share = 1;
  double load_latency_us = 1.88;
  uint32_t ring_bytes = 192 << 10;
  uint32_t ring_stages = 16;
  // One item: filling the ring, epilogue and store.
  double item_us = 0.75;
  double item_us_per_a_row = 0.0033;
  // The ring drains when a block goes on with another tile.
  double tile_change_us = 1.2;
  // A part of a split tile: its sums go to the workspace, and the last part adds them.
  double split_us = 1.25;
  double split_bytes_per_us = 31e3;
  // Whole launches: besides the busiest block, and of those that HBM bounds. Without a launch
  // before and after it, the memory idles while pipelines fill and results are stored. What is
  // written stays in the L2 for a while: hence more than HBM's 4.2e6.
  double launch_us = 2.9;
  double memory_launch_us = 2.6;
  double memory_idle_us = 3.2;
  double hbm_bytes_per_us = 4.36e6;
  // What a launch pays for being on all SMs that it may use, and less down to half of them: the
  // next one finds none to set up on. Where HBM bounds it, it gains: more bytes are in flight.
  double crowded_launch_us = 0;
  double crowded_memory_us = 0;
  // Launches that copy operands first (Work::repack_bytes): another launch, and what a kernel that
  // only reads and writes moves. Estimates.
  double repack_launch_us = 2.0;
  double repack_bytes_per_us = 2.5e6;
};

// For policies::GroupGoal::kChain: fitted to steps of chains, which the constants above fit badly
// (tests/unit/kernels/group/group_steps_test.cc).
constexpr GroupCostConstants ChainConstants() {
  return {.sm_bytes_per_us = 103e3,
          .a_byte_share = 0.78,
          .load_latency_us = 1.4,
          .item_us = 0,
          .item_us_per_a_row = 0,
          .split_us = 0.19,
          .split_bytes_per_us = 18.6e3,
          .launch_us = 2.2,
          .memory_idle_us = 1.27,
          .crowded_launch_us = 2.65,
          .crowded_memory_us = -1.0};
}

// For pairs of blocks. They ask less of the L2, which all SMs share, also where rows begin at
// multiples of 128 bytes (ADR 19).
constexpr GroupCostConstants PairConstants() { return {.stage_us_per_a_row_w128 = 0.0025}; }

// What copying `bytes` adds to a group launch. 0: nothing is launched.
inline float GroupRepackUs(uint64_t bytes, const GroupCostConstants& constants = {}) {
  if (bytes == 0) return 0;
  const double copy_us = 2 * static_cast<double>(bytes) / constants.repack_bytes_per_us;
  return static_cast<float>(constants.repack_launch_us + copy_us);
}

// The formulas over the constants, for one of the lists of tiles. Immutable.
class GroupCosts {
 public:
  explicit GroupCosts(const GroupCostConstants& constants = {},
                      std::span<const GroupTile> tiles = kGroupTiles);

  struct Tile {
    std::array<double, kGroupRowsCount> stage_us = {};  // of kGroupBlockKBytes of K, by GroupRows
    double item_us = 0;                                 // of an item besides its stages
    double split_us = 0;  // more, of an item that is part of a split tile
    uint32_t partial_bytes = 0;
  };
  // The tiles there are. Everything here names them by their place among them.
  std::span<const GroupTile> shapes() const { return shapes_; }
  const Tile& tile(int tile) const { return tiles_[tile]; }
  double tile_change_us() const { return constants_.tile_change_us; }

  // Time of one item. A split tile's parts all pay for the reduction.
  double ItemUs(int tile, GroupRows rows, uint32_t k_blocks, bool split) const {
    const Tile& costs = tiles_[tile];
    return k_blocks * costs.stage_us[static_cast<int>(rows)] + costs.item_us +
           (split ? costs.split_us : 0);
  }

  // Of an item of a problem's last tiles along A, which computes `tail_rows` rows (TailRows).
  double TailUs(int tile, int tail_rows, GroupRows rows, uint32_t k_blocks, bool split) const;

  // What a launch asks of the GPU.
  struct Demand {
    double busiest_us = 0;  // of the block that works longest
    double mean_us = 0;     // work of all blocks over the number of SMs
    double bytes = 0;       // through HBM
    double split_us = 0;    // the dearest reduction
    // Crowding() of its blocks, twice, so that bounds can take the better of each.
    double launch_crowding = 0, memory_crowding = 0;
  };
  // 0 for a launch on half of the SMs that it may use or on fewer, 1 on all.
  static double Crowding(int used_blocks, int blocks) {
    return std::max(0.0, 2.0 * used_blocks / blocks - 1);
  }
  // Orders launches by their time: the sum of the sixth powers of the bounds by SMs and by memory,
  // which is their maximum, rounded where they meet. The power is the prototype's choice, not a
  // fit. Two launches at most overlap (kernels/group), so SMs that a launch leaves idle are not all
  // lost.
  double Score(const Demand& demand, policies::GroupGoal goal) const {
    const bool overlaps = goal == policies::GroupGoal::kThroughput;
    const double sm_us =
        overlaps ? std::max(demand.mean_us, demand.busiest_us / 2) : demand.busiest_us;
    const double idle_us = overlaps ? 0 : constants_.memory_idle_us;
    return Pow6(sm_us + constants_.launch_us +
                constants_.crowded_launch_us * demand.launch_crowding) +
           Pow6(MemoryUs(demand.bytes) + idle_us + demand.split_us +
                constants_.crowded_memory_us * demand.memory_crowding);
  }
  static double Us(double score);  // the time of that launch
  double launch_us() const { return constants_.launch_us; }

 private:
  static double Pow6(double x) { return x * x * x * (x * x * x); }
  double MemoryUs(double bytes) const {
    return constants_.memory_launch_us + bytes / constants_.hbm_bytes_per_us;
  }

  GroupCostConstants constants_;
  std::span<const GroupTile> shapes_;
  std::array<Tile, kGroupTileCount> tiles_;
};

// Stages of a problem's K: units of kGroupBlockKBytes.
inline uint32_t KBlocks(const policies::Problem& problem) {
  const uint64_t bytes = uint64_t{problem.k} * policies::DtypeBytes(problem.dtype);
  return static_cast<uint32_t>((bytes + kGroupBlockKBytes - 1) / kGroupBlockKBytes);
}

// Bytes through HBM: A and W read once, D written once as 16-bit values.
double HbmBytes(const policies::Problem& problem);

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_GROUP_PLAN_COST_H_
