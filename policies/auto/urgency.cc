#include "policies/auto/urgency.h"

#include <algorithm>
#include <array>

#include "policies/auto/split/launch_splitter.h"

namespace concert::policies {

void UrgentTime::Add(const OpCost& cost, bool shares) {
  if (!shares) {
    serial_us_ += cost.solo_us;
    return;
  }
  longest_us_ = std::max(longest_us_, cost.busy_us);
  sm_us_ += cost.sm_share * cost.busy_us / sm_share_;
  hbm_us_ += cost.hbm_us;
}

float UrgentTime::us() const {
  const double shared_us = std::max({longest_us_, sm_us_, hbm_us_});
  return static_cast<float>(serial_us_ + (shared_us > 0 ? floor_us_ + shared_us : 0));
}

int FindUrgent(const Scope& scope, std::span<const float> end_us, CostMemo& memo, UrgentTime urgent,
               bool may_share, std::span<uint16_t> found) {
  const auto left_us = [&](int i) {
    return static_cast<float>(scope.op(i).deadline - scope.snapshot->now) * 1e-3f;
  };
  std::array<uint16_t, kMaxReady> late;
  int late_count = 0;
  for (int i = 0; i < scope.count(); ++i) {
    if (scope.op(i).deadline != 0 && end_us[i] > left_us(i))
      late[late_count++] = static_cast<uint16_t>(i);
  }
  std::sort(late.begin(), late.begin() + late_count, [&](uint16_t a, uint16_t b) {
    const Time a_due = scope.op(a).deadline, b_due = scope.op(b).deadline;
    return a_due != b_due ? a_due < b_due : a < b;
  });
  int count = 0;
  for (int k = 0; k < late_count && urgent.us() < kHorizonUs; ++k) {
    const int i = late[k];
    const Work& work = scope.op(i).work;
    UrgentTime with = urgent;
    with.Add(memo.Of(work, scope.work_hash(i)), may_share && work.chains());
    if (with.us() > left_us(i)) continue;
    found[count++] = late[k];
    urgent = with;
  }
  return count;
}

}  // namespace concert::policies
