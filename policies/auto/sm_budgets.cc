#include "policies/auto/sm_budgets.h"

#include <cmath>

namespace concert::policies {
namespace {

constexpr float kLateSteps = 4;  // of an octave

}  // namespace

SmBudgets::SmBudgets(const DeviceModel& device, const TunedTable* tuned)
    : device_(device),
      sms_{0, ClassBudgetsOf(device_.sm_count)[0], ClassBudgetsOf(device_.sm_count)[1], 0},
      memos_{CostMemo(device_, sms_[0], tuned), CostMemo(device_, sms_[1], tuned),
             CostMemo(device_, sms_[2], tuned), CostMemo(device_, sms_[3], tuned)} {}

void SmBudgets::LeaveToCollectives(int sms) {
  held_sms_ = sms;
  int& beside = sms_[static_cast<int>(Budget::kBesideCollective)];
  const int left = std::max(1, device_.sm_count - sms);
  if (beside == left) return;
  beside = left;
  MemoOf(Budget::kBesideCollective).UseSms(left);
}

void SmBudgets::UseLate(float late_us) {
  late_step_ = static_cast<uint32_t>(std::lround(kLateSteps * std::log2(late_us)));
}

float SmBudgets::LateUs() const { return std::exp2(static_cast<float>(late_step_) / kLateSteps); }

}  // namespace concert::policies
