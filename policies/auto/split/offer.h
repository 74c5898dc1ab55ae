// The ops that are to be split into launches, and what each costs in one of its own.
#ifndef CONCERT_POLICIES_AUTO_SPLIT_OFFER_H_
#define CONCERT_POLICIES_AUTO_SPLIT_OFFER_H_

#include <array>
#include <cstdint>
#include <span>

#include "policies/auto/split/fair_bounds.h"
#include "policies/auto/split/launch_times.h"
#include "policies/cost/cost_model.h"
#include "policies/seam/form.h"
#include "policies/seam/snapshot.h"

namespace concert::policies {

// One ready op of the class that is planned.
struct SplitOp {
  const Work* work = nullptr;
  OpCost cost;                // with the best library kernel on the budget
  bool same_session = false;  // as the op before
  bool urgent = false;
};

// Not thread-safe.
class Offer {
 public:
  // An op with what it costs in a launch of its own.
  struct Item {
    float library_us = 0;  // by the library, before it is corrected
    float alone_us = 0;    // the launch that is best for it, before it is corrected
    float serial_us = 0;   // the measure of harm: the best kernel alone
    uint16_t session = 0;
    Form alone_form = Form::kSingle;
    Carrier carrier = Carrier::kNone;  // whose launches it may share with others
    bool urgent = false;
    bool tuned = false;
  };

  // From now on it is `ops`, 1 to kMaxReady of them in the snapshot's order, which stay as they are
  // until the next call, at the site of `times`.
  void Take(std::span<const SplitOp> ops, LaunchTimes& times);

  int count() const { return static_cast<int>(ops_.size()); }
  const SplitOp& op(int i) const { return ops_[i]; }
  const Item& item(int i) const { return items_[i]; }
  // Those that may go into groups, shortest first.
  std::span<const uint16_t> by_time() const {
    return {by_time_.data(), static_cast<size_t>(groupable_count_)};
  }
  int row_count() const { return row_count_; }
  // Without, all launches are of library kernels.
  bool may_group() const { return groupable_count_ + row_count_ > 0; }
  // When the op's session must have ended.
  float BoundUs(int i) const { return bounds_.BoundUs(items_[i].session); }

 private:
  static Item ItemOf(const SplitOp& op, bool only_one, LaunchTimes& times);

  std::span<const SplitOp> ops_;
  std::array<Item, kMaxReady> items_;
  FairBounds bounds_;
  int groupable_count_ = 0;
  int row_count_ = 0;
  std::array<uint16_t, kMaxReady> by_time_;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_SPLIT_OFFER_H_
