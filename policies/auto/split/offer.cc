#include "policies/auto/split/offer.h"

#include <algorithm>

namespace concert::policies {
namespace {

// Constants of this file: ADR 13, "What the constants rest on", has what was measured.

// What follows a library kernel waits for the write of its timeline.
constexpr float kSignalBehindOthersUs = 3.0f;
// A group launch starts beside the end of the one that it follows, a library kernel after it, and
// so does the group launch after that.
constexpr float kDrainUs = 4.0f;

}  // namespace

void Offer::Take(std::span<const SplitOp> ops, LaunchTimes& times) {
  ops_ = ops;
  groupable_count_ = row_count_ = 0;
  bounds_.Clear();
  float urgent_us = 0;
  for (int i = 0; i < count(); ++i) {
    const SplitOp& op = ops_[i];
    Item& item = items_[i];
    // Equal ops often follow each other.
    const bool repeated = i > 0 && *op.work == *ops_[i - 1].work;
    item = repeated ? items_[i - 1] : ItemOf(op, count() == 1, times);
    bounds_.Add(item.serial_us, op.same_session);
    item.session = bounds_.last_session();
    item.urgent = op.urgent;
    if (op.urgent) urgent_us += item.serial_us;
    row_count_ += item.carrier == Carrier::kRows;
    if (item.carrier == Carrier::kGroup) by_time_[groupable_count_++] = static_cast<uint16_t>(i);
  }
  bounds_.FindBounds(urgent_us);
  std::sort(by_time_.begin(), by_time_.begin() + groupable_count_, [this](uint16_t a, uint16_t b) {
    return items_[a].serial_us != items_[b].serial_us ? items_[a].serial_us < items_[b].serial_us
                                                      : a < b;
  });
}

Offer::Item Offer::ItemOf(const SplitOp& op, bool only_one, LaunchTimes& times) {
  const Site& site = times.site();
  const float signal_us = site.goal == GroupGoal::kThroughput ? kSignalBehindOthersUs : kSignalUs;
  const float library_us = static_cast<float>(op.cost.solo_us) + signal_us +
                           (site.goal == GroupGoal::kChain ? kDrainUs : 0);
  const float single = times.Ratio(Arrangement::kSingle);
  const float group = times.Ratio(only_one ? Arrangement::kGroup : Arrangement::kGroups);
  Item item{.library_us = library_us,
            .alone_us = library_us,
            .serial_us = library_us * single,
            .tuned = op.cost.tuned};
  if (times.has_groups()) item.carrier = op.work->carrier;
  // On the groups' lane a launch of rows signals by itself, and starts beside the end of what it
  // follows.
  if (item.carrier == Carrier::kRows) item.alone_us = static_cast<float>(op.cost.solo_us);
  if (item.carrier != Carrier::kGroup) return item;
  const bool budgeted = site.sms.limited();
  const Problem problem = Problem::Of(*op.work);
  bool tuned = false;
  const float group_us = times.GroupUs({&problem, 1}, op.work->repack_bytes, tuned);
  if (budgeted || group_us * group <= library_us * single) {
    item.alone_us = group_us;
    item.alone_form = Form::kGroup;
    item.tuned = tuned;
  }
  // Library kernels cannot keep to a budget, so there one launch after the other is the measure.
  if (budgeted) item.serial_us = group_us * group;
  return item;
}

}  // namespace concert::policies
