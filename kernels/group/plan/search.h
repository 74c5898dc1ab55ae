// Chooses how each problem of a group launch is cut, so that the launch is short.
#ifndef CONCERT_KERNELS_GROUP_PLAN_SEARCH_H_
#define CONCERT_KERNELS_GROUP_PLAN_SEARCH_H_

#include <array>
#include <cstdint>
#include <span>

#include "kernels/group/plan/cost.h"
#include "kernels/group/plan/packing.h"
#include "kernels/group/plan/shape.h"
#include "kernels/group/plan/work_list.h"

namespace concert::kernels {

// The problems of one shape in a launch; all are cut alike. Sets stand in the order of their
// first problems.
struct ShapeSet {
  const ShapeOptions* shape = nullptr;
  uint16_t problems = 0;
  uint16_t first_member =
      0;               // its problems are `problems` entries of the launch's members from here
  uint8_t option = 0;  // chosen, index into shape->options

  const TileOption& chosen() const { return shape->options[option]; }
};

// What the options chosen for a launch add up to.
struct LaunchTotals {
  double work_us = 0;
  double longest_us = 0;  // item
  double split_us = 0;    // dearest reduction
  uint64_t items = 0;
  uint64_t split_tiles = 0;
  uint32_t partial_bytes = 0;
  uint32_t max_splits = 1;

  void Add(const TileOption& option, int problems, const GroupCosts& costs);
  // Whether a work list for `blocks` blocks can hold it, as long as the blocks get about as many
  // items each.
  bool Fits(int blocks) const;
};

// Two steps. First, for every limit on the length of an item, the options with the least work that
// keep to it: sums over the sets. The limits that promise most are packed. Then, from the best
// of them, one set at a time gets another option if that shortens the launch, as long as there is
// effort left; what a bound already excludes is not packed. Not thread-safe.
class GroupSearch {
 public:
  // `costs` must outlive this.
  explicit GroupSearch(const GroupCosts& costs);

  // Sets the options of 1 to kMaxGroupProblems sets that together move `hbm_bytes`. False if no
  // options fit. Deterministic, and depends on nothing but its arguments.
  bool Choose(std::span<ShapeSet> sets, double hbm_bytes, const LaunchBlocks& blocks,
              policies::GroupGoal goal);

  // About the time of the launch that Choose() would make, with hardly any effort.
  // Changes the sets' options.
  float EstimateUs(std::span<ShapeSet> sets, double hbm_bytes, const LaunchBlocks& blocks,
                   policies::GroupGoal goal);

  // Sets in the order in which they are packed: longest items first. Valid until the next call.
  std::span<const uint16_t> PackingOrder(std::span<const ShapeSet> sets);

 private:
  static constexpr int kLimits = ItemLimits::kCount;
  using LimitValues = std::array<float, kLimits>;

  void Look(std::span<ShapeSet> sets, double hbm_bytes, const LaunchBlocks& blocks,
            policies::GroupGoal goal);
  void Begin(std::span<ShapeSet> sets, double hbm_bytes, const LaunchBlocks& blocks,
             policies::GroupGoal goal);
  void SumByLimit();
  double BoundAt(int limit) const;
  void PackLikelyLimits();
  void Improve();
  bool ImproveSet(uint16_t index);
  LaunchTotals TotalsWithout(int skipped) const;
  double Score(double busiest_us, double work_us, double split_us, double launch_crowding,
               double memory_crowding) const;
  double BoundScore(double longest_us, double work_us, double split_us) const;
  double Bound(const LaunchTotals& totals) const;
  double Pack(const LaunchTotals& totals, double enough);
  double ScoreOfOneSet() const;
  bool TryChosen();

  const GroupCosts& costs_;
  BlockPacking packing_;
  std::span<ShapeSet> sets_;
  double hbm_bytes_ = 0;
  LaunchBlocks blocks_;
  policies::GroupGoal goal_ = policies::GroupGoal::kLatency;
  int effort_ = 0;  // BlockPacking::Add() calls left
  double best_score_ = 0;
  std::array<uint8_t, kMaxGroupProblems> best_options_;
  std::array<uint16_t, kMaxGroupProblems> order_;
  std::array<uint64_t, kMaxGroupProblems> order_keys_;
  LimitValues work_us_, longest_us_, split_us_;  // of the launch, by item limit
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_GROUP_PLAN_SEARCH_H_
