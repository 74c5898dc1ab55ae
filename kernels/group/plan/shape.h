// Ways to cut one GEMM of a group launch into items, and what each costs.
#ifndef CONCERT_KERNELS_GROUP_PLAN_SHAPE_H_
#define CONCERT_KERNELS_GROUP_PLAN_SHAPE_H_

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/group/plan/cost.h"
#include "policies/cost/tuned_table.h"

namespace concert::kernels {

// One way to cut a problem into items.
struct TileOption {
  uint8_t tile = 0;    // GroupCosts::shapes()
  uint8_t splits = 1;  // parts of each tile
  uint32_t tiles = 0;  // of the problem
  float item_us = 0;   // of its longest item
  float work_us = 0;   // of all its items; those of its last row of tiles may be shorter

  uint32_t items() const { return tiles * splits; }
};

// Limits on the length of an item, four per octave from 1 us on, the last one with no limit: for
// each, the least work that keeps to it. Sums over problems then say what a limit costs a launch.
class ItemLimits {
 public:
  static constexpr int kCount = 48;
  // The first limit that an item of `us` keeps to.
  static int Of(float us) {
    constexpr int kShift = 21;  // leaves the exponent and two bits of the mantissa
    const int step = static_cast<int>(std::bit_cast<uint32_t>(us) >> kShift) -
                     static_cast<int>(std::bit_cast<uint32_t>(1.0f) >> kShift);
    return step < 0 ? 0 : step < kCount ? step : kCount - 1;
  }
};

inline constexpr int kSplitChoices = 10;  // numbers of parts that are considered

// All options of one shape. Computed from the shape and the costs alone.
struct ShapeOptions {
  static constexpr int kMaxOptions = kGroupTileCount * kSplitChoices;
  static constexpr float kImpossible = 1e30f;

  policies::Problem problem;
  uint64_t used = 0;  // ShapeMemo's: when it was last asked for
  double hbm_bytes = 0;
  int count = 0;         // 0: no option keeps to what a launch can hold
  int fewest_items = 0;  // which option
  std::array<TileOption, kMaxOptions> options;

  // By item limit: which option does the least work, and what it costs; kImpossible if none keeps
  // to the limit.
  std::array<uint8_t, ItemLimits::kCount> option_by_limit;
  alignas(64) std::array<float, ItemLimits::kCount> work_by_limit;
  alignas(64) std::array<float, ItemLimits::kCount> item_by_limit;
  alignas(64) std::array<float, ItemLimits::kCount> split_by_limit;  // its reduction; 0: not split

  std::span<const TileOption> all() const { return {options.data(), static_cast<size_t>(count)}; }

  void Compute(const policies::Problem& problem, const GroupCosts& costs);
};

// The options of shapes met lately, in fixed memory. Not thread-safe.
class ShapeMemo {
 public:
  explicit ShapeMemo(const GroupCosts& costs);

  // Starts a launch: what Get() gave for earlier ones may be replaced from now on.
  void NextLaunch() { ++launch_; }
  // Valid until NextLaunch(), for up to kMaxGroupProblems shapes.
  const ShapeOptions& Get(const policies::Problem& problem);

 private:
  static constexpr uint32_t kSlots = 512;  // a power of two, more than kMaxGroupProblems
  static constexpr uint32_t kProbes = 4;

  const GroupCosts& costs_;
  uint64_t launch_ = 1;
  std::vector<ShapeOptions> slots_;
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_GROUP_PLAN_SHAPE_H_
