#include "kernels/group/plan/shape.h"

#include <algorithm>

#include "policies/seam/hash.h"

namespace concert::kernels {
namespace {

constexpr uint32_t kSplits[kSplitChoices] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
static_assert(kSplits[kSplitChoices - 1] == kMaxGroupSplits);
// A problem with more items than this has enough for every block without splitting its tiles.
constexpr uint32_t kEnoughItems = 400;  // three for each of 132 blocks

uint32_t CeilDiv(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>((uint64_t{a} + b - 1) / b);
}

// Tiles that could not pay whatever the rest of the launch: mostly empty ones, and ones so low that
// W would be read from the L2 more than eight times.
bool WorthTrying(GroupTile tile, uint32_t m) {
  if (tile.a_rows > 32 && tile.a_rows >= 2 * uint64_t{m}) return false;
  return tile.a_rows >= 64 || tile.a_rows * 8u >= m;
}

struct Split {
  uint32_t parts = 1;
  uint32_t part_k_blocks = 0;  // of the longest part
};

// The ways to split a tile along K that differ in the length of the longest part.
class SplitList {
 public:
  explicit SplitList(uint32_t k_blocks) {
    uint32_t last = 0;
    for (const uint32_t parts : kSplits) {
      const uint32_t longest = CeilDiv(k_blocks, parts);
      if (longest == last) continue;
      last = longest;
      splits_[count_++] = {CeilDiv(k_blocks, longest), longest};
    }
  }
  std::span<const Split> all() const { return {splits_.data(), count_}; }

 private:
  std::array<Split, kSplitChoices> splits_;
  size_t count_ = 0;
};

}  // namespace

void ShapeOptions::Compute(const policies::Problem& shape, const GroupCosts& costs) {
  problem = shape;
  hbm_bytes = HbmBytes(shape);
  count = 0;
  fewest_items = 0;
  option_by_limit.fill(0);
  work_by_limit.fill(kImpossible);
  const SplitList splits(KBlocks(shape));
  const GroupRows rows = RowsOf(shape);
  for (int t = 0; t < static_cast<int>(costs.shapes().size()); ++t) {
    const GroupTile tile = costs.shapes()[t];
    if (!WorthTrying(tile, shape.m)) continue;
    const uint64_t tiles = uint64_t{CeilDiv(shape.n, tile.w_rows)} * CeilDiv(shape.m, tile.a_rows);
    if (tiles >= kMaxGroupItems) continue;
    float last_item_us = kImpossible;
    for (const Split& s : splits.all()) {
      const bool split = s.parts > 1;
      if (split && (tiles * s.parts > kEnoughItems ||
                    tiles * s.parts * costs.tile(t).partial_bytes > kGroupPartialBytes)) {
        break;
      }
      const auto item_us = static_cast<float>(costs.ItemUs(t, rows, s.part_k_blocks, split));
      if (item_us >= last_item_us) continue;  // what the reduction costs is more than it saves
      last_item_us = item_us;
      const auto items = static_cast<float>(tiles * s.parts);
      const auto tail_us = static_cast<float>(
          costs.TailUs(t, TailRows(costs.shapes(), tile, shape.m), rows, s.part_k_blocks, split));
      const float saved_us = (item_us - tail_us) * items / CeilDiv(shape.m, tile.a_rows);
      TileOption& option = options[count];
      option = {.tile = static_cast<uint8_t>(t),
                .splits = static_cast<uint8_t>(s.parts),
                .tiles = static_cast<uint32_t>(tiles),
                .item_us = item_us,
                .work_us = item_us * items - saved_us};
      if (option.items() < options[fewest_items].items()) fewest_items = count;
      const int limit = ItemLimits::Of(item_us);
      if (option.work_us < work_by_limit[limit]) {
        work_by_limit[limit] = option.work_us;
        option_by_limit[limit] = static_cast<uint8_t>(count);
      }
      ++count;
    }
  }
  for (int i = 0; i < ItemLimits::kCount; ++i) {
    if (i > 0 && work_by_limit[i - 1] <= work_by_limit[i]) {
      work_by_limit[i] = work_by_limit[i - 1];
      option_by_limit[i] = option_by_limit[i - 1];
    }
    const TileOption& best = options[option_by_limit[i]];
    const bool possible = work_by_limit[i] < kImpossible;
    item_by_limit[i] = possible ? best.item_us : kImpossible;
    split_by_limit[i] =
        possible && best.splits > 1 ? static_cast<float>(costs.tile(best.tile).split_us) : 0;
  }
}

ShapeMemo::ShapeMemo(const GroupCosts& costs) : costs_(costs), slots_(kSlots) {}

const ShapeOptions& ShapeMemo::Get(const policies::Problem& problem) {
  const auto hash = static_cast<uint32_t>(policies::HashProblem(problem));
  ShapeOptions* oldest = nullptr;
  for (uint32_t i = 0; i < kSlots; ++i) {
    ShapeOptions& slot = slots_[(hash + i) % kSlots];
    if (slot.used != 0 && slot.problem == problem) {
      slot.used = launch_;
      return slot;
    }
    if (oldest == nullptr || slot.used < oldest->used) oldest = &slot;
    // A shape further away than kProbes is computed again, unless all nearer slots are in use.
    if (i + 1 >= kProbes && oldest->used < launch_) break;
  }
  oldest->Compute(problem, costs_);
  oldest->used = launch_;
  return *oldest;
}

}  // namespace concert::kernels
