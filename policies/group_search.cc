#include "policies/group_search.h"

#include <algorithm>
#include <limits>

namespace concert::policies {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();
// Limits that are packed before the search goes on class by class. More found nothing better on
// the scenarios of the benchmarks.
constexpr int kLikelyLimits = 4;
constexpr int kEstimateLimits = 2;
// What must be gained to change a class: less is below what the costs are good for.
constexpr double kGain = 0.97;  // of the score, which is a sixth power: 0.5 % of the time
// Effort, in shapes packed: about 20 ns each. Bounds the time of one Choose().
constexpr int kEffortBase = 200;
constexpr int kEffortPerClass = 16;
constexpr int kMaxPasses = 3;

}  // namespace

void LaunchTotals::Add(const TileOption& option, int problems, const GroupCosts& costs) {
  work_us += double{option.work_us} * problems;
  longest_us = std::max(longest_us, double{option.item_us});
  items += uint64_t{option.items()} * problems;
  if (option.splits == 1) return;
  const GroupCosts::Tile& tile = costs.tile(option.tile);
  split_us = std::max(split_us, tile.split_us);
  split_tiles += uint64_t{option.tiles} * problems;
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
    : costs_(costs), packing_(costs.tile_change_us()) {}

bool GroupSearch::Choose(std::span<ProblemClass> classes, double hbm_bytes, int blocks) {
  Begin(classes, hbm_bytes, blocks);
  PackLikelyLimits(kLikelyLimits);
  if (best_score_ == kNone) {
    for (ProblemClass& c : classes_) {
      if (c.shape->count == 0) return false;
      c.option = static_cast<uint8_t>(c.shape->fewest_items);
    }
    if (!TryChosen()) return false;
  }
  Improve();
  for (size_t i = 0; i < classes_.size(); ++i) classes_[i].option = best_options_[i];
  return true;
}

float GroupSearch::EstimateUs(std::span<ProblemClass> classes, double hbm_bytes, int blocks) {
  Begin(classes, hbm_bytes, blocks);
  PackLikelyLimits(kEstimateLimits);
  return static_cast<float>(GroupCosts::Us(best_score_));
}

void GroupSearch::Begin(std::span<ProblemClass> classes, double hbm_bytes, int blocks) {
  classes_ = classes;
  hbm_bytes_ = hbm_bytes;
  blocks_ = blocks;
  best_score_ = kNone;
  effort_ = kEffortBase + kEffortPerClass * static_cast<int>(classes.size());
  order_count_ = 0;
  SumByLimit();
}

void GroupSearch::SumByLimit() {
  work_us_.fill(0);
  longest_us_.fill(0);
  split_us_.fill(0);
  for (const ProblemClass& c : classes_) {
    const auto problems = static_cast<float>(c.problems);
    const ShapeOptions& shape = *c.shape;
    for (int i = 0; i < kLimits; ++i) {
      work_us_[i] += shape.work_by_limit[i] * problems;
      longest_us_[i] = std::max(longest_us_[i], shape.item_by_limit[i]);
      split_us_[i] = std::max(split_us_[i], shape.split_by_limit[i]);
    }
  }
}

// What a launch could reach if its items filled all blocks evenly.
double GroupSearch::BoundAt(int limit) const {
  const double busiest_us = std::max<double>(longest_us_[limit], double{work_us_[limit]} / blocks_);
  return costs_.Score(busiest_us, hbm_bytes_, split_us_[limit]);
}

void GroupSearch::PackLikelyLimits(int count) {
  std::array<double, kLimits> bounds;
  for (int limit = 0; limit < kLimits; ++limit) {
    // The same sums are the same options.
    const bool same = limit > 0 && work_us_[limit] == work_us_[limit - 1];
    const bool possible = work_us_[limit] < ShapeOptions::kImpossible;
    bounds[limit] = same || !possible ? kNone : BoundAt(limit);
  }
  for (int tries = 0; tries < count; ++tries) {
    const auto likely = std::min_element(bounds.begin(), bounds.end());
    if (*likely >= best_score_) return;
    *likely = kNone;
    const auto limit = static_cast<size_t>(likely - bounds.begin());
    for (ProblemClass& c : classes_) c.option = c.shape->option_by_limit[limit];
    // One whose sums meet in too much workspace makes room for the next.
    if (!TryChosen() && best_score_ == kNone) --tries;
  }
}

bool GroupSearch::TryChosen() {
  const LaunchTotals totals = TotalsWithout(-1);
  if (!totals.Fits(blocks_)) return false;
  const double score = Pack(totals, best_score_);
  if (score >= best_score_) return false;
  best_score_ = score;
  for (size_t i = 0; i < classes_.size(); ++i) best_options_[i] = classes_[i].option;
  return true;
}

void GroupSearch::Improve() {
  for (size_t i = 0; i < classes_.size(); ++i) classes_[i].option = best_options_[i];
  std::array<uint16_t, kMaxGroupProblems> by_length;
  const auto order = PackingOrder(classes_);
  std::copy(order.begin(), order.end(), by_length.begin());
  bool improved = true;
  for (int pass = 0; pass < kMaxPasses && improved; ++pass) {
    improved = false;
    for (size_t i = 0; i < classes_.size() && effort_ > 0; ++i) {
      improved |= ImproveClass(by_length[i]);
    }
  }
}

bool GroupSearch::ImproveClass(uint16_t index) {
  ProblemClass& c = classes_[index];
  const LaunchTotals others = TotalsWithout(index);
  bool improved = false;
  for (int option = 0; option < c.shape->count && effort_ > 0; ++option) {
    if (option == best_options_[index]) continue;
    LaunchTotals totals = others;
    totals.Add(c.shape->options[option], c.problems, costs_);
    if (!totals.Fits(blocks_) || Bound(totals) >= best_score_ * kGain) continue;
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
  for (int i = 0; i < static_cast<int>(classes_.size()); ++i) {
    if (i != skipped) totals.Add(classes_[i].chosen(), classes_[i].problems, costs_);
  }
  return totals;
}

double GroupSearch::Bound(const LaunchTotals& totals) const {
  const double busiest_us = std::max(totals.longest_us, totals.work_us / blocks_);
  return costs_.Score(busiest_us, hbm_bytes_, totals.split_us);
}

// The score of what is chosen, or kNone as soon as it is known to be `enough` or more.
double GroupSearch::Pack(const LaunchTotals& totals, double enough) {
  packing_.Reset(blocks_);
  double score = kNone;
  for (const uint16_t index : PackingOrder(classes_)) {
    const ProblemClass& c = classes_[index];
    const TileOption& option = c.chosen();
    packing_.Add(option.items() * c.problems, option.item_us, option.tile);
    --effort_;
    score = costs_.Score(packing_.busiest_us(), hbm_bytes_, totals.split_us);
    if (score >= enough) return kNone;
  }
  return score;
}

std::span<const uint16_t> GroupSearch::PackingOrder(std::span<const ProblemClass> classes) {
  if (order_count_ != classes.size()) {
    order_count_ = classes.size();
    for (size_t i = 0; i < order_count_; ++i) order_[i] = static_cast<uint16_t>(i);
  }
  // Longest first, then first come first. Insertion sort: little changes from call to call.
  const auto before = [&](uint16_t a, uint16_t b) {
    const float a_us = classes[a].chosen().item_us, b_us = classes[b].chosen().item_us;
    return a_us > b_us || (a_us == b_us && a < b);
  };
  for (size_t i = 1; i < order_count_; ++i) {
    const uint16_t moved = order_[i];
    size_t to = i;
    for (; to > 0 && before(moved, order_[to - 1]); --to) order_[to] = order_[to - 1];
    order_[to] = moved;
  }
  return {order_.data(), order_count_};
}

}  // namespace concert::policies
