#include "kernels/group/plan/search.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace concert::kernels {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();
// Limits that are packed before the search goes on set by set.
constexpr int kLikelyLimits = 2;
// What must be gained to change a set: less is below what the costs are good for.
constexpr double kGain = 0.97;  // of the score, which is a sixth power: 0.5 % of the time
// Effort and kLikelyLimits together bound the time of one Choose(). Effort counts shapes packed:
// about 0.1 us each. Against a search without bounds, plans for 2 to 64 random problems are
// predicted 0 to 1.3 % longer on average, 25 % at worst.
constexpr int kEffortBase = 64;
constexpr int kEffortPerSet = 1;
constexpr int kMaxPasses = 3;
// The same of one EstimateUs(), where it costs accuracy: see GroupCompiler::PredictUs.
constexpr int kEstimateEffort = 16;
// Keeps the time of a packing proportional to the number of shapes.
constexpr size_t kMaxSegments = 8;

}  // namespace

void LaunchTotals::Add(const TileOption& option, int problems, const GroupCosts& costs) {
  work_us += double{option.work_us} * problems;
  longest_us = std::max(longest_us, double{option.item_us});
  items += uint64_t{option.items()} * problems;
  if (option.splits == 1) return;
  const GroupCosts::Tile& tile = costs.tile(option.tile);
  split_us = std::max(split_us, tile.split_us);
  // Each block of a tile has a counter of its own.
  split_tiles += uint64_t{option.tiles} * problems * BlocksPerTile(costs.shapes()[option.tile]);
  partial_bytes = std::max(partial_bytes, tile.partial_bytes);
  max_splits = std::max<uint32_t>(max_splits, option.splits);
}

bool LaunchTotals::Fits(int blocks) const {
  // Two more per block: its kEnd item, and the round that not all blocks take part in.
  return items + 2 * std::min<uint64_t>(blocks, items) <= kMaxGroupItems &&
         split_tiles <= kMaxGroupSplitTiles &&
         split_tiles * max_splits * partial_bytes <= kGroupPartialBytes;
}

GroupSearch::GroupSearch(const GroupCosts& costs)
    : costs_(costs), packing_(costs.tile_change_us(), kMaxSegments) {}

bool GroupSearch::Choose(std::span<ShapeSet> sets, double hbm_bytes, const LaunchBlocks& blocks,
                         policies::GroupGoal goal) {
  Begin(sets, hbm_bytes, blocks, goal);
  PackLikelyLimits();
  if (best_score_ == kNone) {
    for (ShapeSet& c : sets_) {
      if (c.shape->count == 0) return false;
      c.option = static_cast<uint8_t>(c.shape->fewest_items);
    }
    if (!TryChosen()) return false;
  }
  Improve();
  for (size_t i = 0; i < sets_.size(); ++i) sets_[i].option = best_options_[i];
  return true;
}

float GroupSearch::EstimateUs(std::span<ShapeSet> sets, double hbm_bytes,
                              const LaunchBlocks& blocks, policies::GroupGoal goal) {
  if (sets.size() == 1 && blocks.late == 0) {
    Look(sets, hbm_bytes, blocks, goal);
    return static_cast<float>(GroupCosts::Us(ScoreOfOneSet()));
  }
  Begin(sets, hbm_bytes, blocks, goal);
  effort_ = kEstimateEffort;
  PackLikelyLimits();
  if (best_score_ < kNone) Improve();
  return static_cast<float>(GroupCosts::Us(best_score_));
}

// Equal items go round the blocks: of one set every option's time is known at once. What is no
// better than the best so far in any way is not looked at further.
double GroupSearch::ScoreOfOneSet() const {
  const ShapeSet& c = sets_[0];
  double best = kNone, best_busiest_us = kNone, best_work_us = kNone, best_split_us = kNone;
  int best_blocks = 0;
  for (const TileOption& option : c.shape->all()) {
    LaunchTotals totals;
    totals.Add(option, c.problems, costs_);
    const uint64_t rounds = (totals.items + blocks_.count - 1) / blocks_.count;
    const double busiest_us = static_cast<double>(rounds) * option.item_us;
    const int used_blocks = static_cast<int>(std::min<uint64_t>(totals.items, blocks_.count));
    if (busiest_us >= best_busiest_us && totals.work_us >= best_work_us &&
        totals.split_us >= best_split_us && used_blocks == best_blocks) {
      continue;
    }
    if (!totals.Fits(blocks_.count)) continue;
    const double crowding = GroupCosts::Crowding(used_blocks, blocks_.count);
    const double score = Score(busiest_us, totals.work_us, totals.split_us, crowding, crowding);
    if (score >= best) continue;
    best = score;
    best_busiest_us = busiest_us;
    best_work_us = totals.work_us;
    best_split_us = totals.split_us;
    best_blocks = used_blocks;
  }
  return best;
}

void GroupSearch::Look(std::span<ShapeSet> sets, double hbm_bytes, const LaunchBlocks& blocks,
                       policies::GroupGoal goal) {
  sets_ = sets;
  hbm_bytes_ = hbm_bytes;
  blocks_ = blocks;
  goal_ = goal;
}

void GroupSearch::Begin(std::span<ShapeSet> sets, double hbm_bytes, const LaunchBlocks& blocks,
                        policies::GroupGoal goal) {
  Look(sets, hbm_bytes, blocks, goal);
  best_score_ = kNone;
  effort_ = kEffortBase + kEffortPerSet * static_cast<int>(sets.size());
  SumByLimit();
}

void GroupSearch::SumByLimit() {
  // Locals, so that the compiler sees that nothing overlaps and uses vector instructions.
  alignas(64) LimitValues work_us = {}, longest_us = {}, split_us = {};
  for (const ShapeSet& c : sets_) {
    const auto problems = static_cast<float>(c.problems);
    const ShapeOptions& shape = *c.shape;
    for (int i = 0; i < kLimits; ++i) work_us[i] += shape.work_by_limit[i] * problems;
    for (int i = 0; i < kLimits; ++i) {
      const float item_us = shape.item_by_limit[i];
      longest_us[i] = longest_us[i] < item_us ? item_us : longest_us[i];
    }
    for (int i = 0; i < kLimits; ++i) {
      const float reduction_us = shape.split_by_limit[i];
      split_us[i] = split_us[i] < reduction_us ? reduction_us : split_us[i];
    }
  }
  work_us_ = work_us;
  longest_us_ = longest_us;
  split_us_ = split_us;
}

// What a launch could reach if its items filled all blocks evenly.
double GroupSearch::BoundAt(int limit) const {
  return BoundScore(longest_us_[limit], work_us_[limit], split_us_[limit]);
}

void GroupSearch::PackLikelyLimits() {
  std::array<double, kLimits> bounds;
  for (int limit = 0; limit < kLimits; ++limit) {
    // The same sums are the same options.
    const bool same = limit > 0 && work_us_[limit] == work_us_[limit - 1];
    const bool possible = work_us_[limit] < ShapeOptions::kImpossible;
    bounds[limit] = same || !possible ? kNone : BoundAt(limit);
  }
  for (int tries = 0; tries < kLikelyLimits; ++tries) {
    const auto likely = std::min_element(bounds.begin(), bounds.end());
    if (*likely >= best_score_ || (effort_ <= 0 && best_score_ < kNone)) return;
    *likely = kNone;
    const auto limit = static_cast<size_t>(likely - bounds.begin());
    for (ShapeSet& c : sets_) c.option = c.shape->option_by_limit[limit];
    // One whose sums meet in too much workspace makes room for the next.
    if (!TryChosen() && best_score_ == kNone) --tries;
  }
}

bool GroupSearch::TryChosen() {
  const LaunchTotals totals = TotalsWithout(-1);
  if (!totals.Fits(blocks_.count)) return false;
  const double score = Pack(totals, best_score_);
  if (score >= best_score_) return false;
  best_score_ = score;
  for (size_t i = 0; i < sets_.size(); ++i) best_options_[i] = sets_[i].option;
  return true;
}

void GroupSearch::Improve() {
  for (size_t i = 0; i < sets_.size(); ++i) sets_[i].option = best_options_[i];
  std::array<uint16_t, kMaxGroupProblems> by_length;
  const auto order = PackingOrder(sets_);
  std::copy(order.begin(), order.end(), by_length.begin());
  bool improved = true;
  for (int pass = 0; pass < kMaxPasses && improved; ++pass) {
    improved = false;
    for (size_t i = 0; i < sets_.size() && effort_ > 0; ++i) {
      improved |= ImproveSet(by_length[i]);
    }
  }
}

bool GroupSearch::ImproveSet(uint16_t index) {
  ShapeSet& c = sets_[index];
  const LaunchTotals others = TotalsWithout(index);
  bool improved = false;
  for (int option = 0; option < c.shape->count && effort_ > 0; ++option) {
    if (option == best_options_[index]) continue;
    LaunchTotals totals = others;
    totals.Add(c.shape->options[option], c.problems, costs_);
    if (!totals.Fits(blocks_.count) || Bound(totals) >= best_score_ * kGain) continue;
    c.option = static_cast<uint8_t>(option);
    const double score = Pack(totals, best_score_ * kGain);
    if (score >= best_score_ * kGain) continue;
    best_score_ = score;
    best_options_[index] = c.option;
    improved = true;
  }
  c.option = best_options_[index];
  return improved;
}

LaunchTotals GroupSearch::TotalsWithout(int skipped) const {
  LaunchTotals totals;
  for (int i = 0; i < static_cast<int>(sets_.size()); ++i) {
    if (i != skipped) totals.Add(sets_[i].chosen(), sets_[i].problems, costs_);
  }
  return totals;
}

double GroupSearch::Score(double busiest_us, double work_us, double split_us,
                          double launch_crowding, double memory_crowding) const {
  return costs_.Score({.busiest_us = busiest_us,
                       .mean_us = (work_us + blocks_.lost_us()) / blocks_.count,
                       .bytes = hbm_bytes_,
                       .split_us = split_us,
                       .launch_crowding = launch_crowding,
                       .memory_crowding = memory_crowding},
                      goal_);
}

// What no packing of that work can beat.
double GroupSearch::BoundScore(double longest_us, double work_us, double split_us) const {
  const double busiest_us = std::max(longest_us, work_us / blocks_.count);
  return Score(busiest_us, work_us, split_us, /*launch_crowding=*/0, /*memory_crowding=*/1);
}

double GroupSearch::Bound(const LaunchTotals& totals) const {
  return BoundScore(totals.longest_us, totals.work_us, totals.split_us);
}

// The score of what is chosen, or kNone as soon as it is known to be `enough` or more.
double GroupSearch::Pack(const LaunchTotals& totals, double enough) {
  packing_.Reset(blocks_);
  double crowding = 0;
  for (const uint16_t index : PackingOrder(sets_)) {
    const ShapeSet& c = sets_[index];
    const TileOption& option = c.chosen();
    packing_.Add(option.items() * c.problems, option.item_us, option.tile);
    --effort_;
    crowding = GroupCosts::Crowding(packing_.used_blocks(), blocks_.count);
    const double least = Score(packing_.busiest_us(), totals.work_us, totals.split_us, crowding,
                               /*memory_crowding=*/1);
    if (least >= enough) return kNone;
  }
  const double score =
      Score(packing_.busiest_us(), totals.work_us, totals.split_us, crowding, crowding);
  return score < enough ? score : kNone;
}

std::span<const uint16_t> GroupSearch::PackingOrder(std::span<const ShapeSet> sets) {
  // Longest first, then first come first: lengths are positive, so that their bits order them.
  const size_t count = sets.size();
  for (size_t i = 0; i < count; ++i) {
    const uint32_t shortness = ~std::bit_cast<uint32_t>(sets[i].chosen().item_us);
    order_keys_[i] = uint64_t{shortness} << 32 | i;
  }
  std::sort(order_keys_.begin(), order_keys_.begin() + count);
  for (size_t i = 0; i < count; ++i) order_[i] = static_cast<uint16_t>(order_keys_[i]);
  return {order_.data(), count};
}

}  // namespace concert::kernels
