// On how many SMs a plan of `auto` may run, and what ops cost there.
#ifndef CONCERT_POLICIES_AUTO_SM_BUDGETS_H_
#define CONCERT_POLICIES_AUTO_SM_BUDGETS_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "policies/cost/cost_memo.h"
#include "policies/cost/cost_model.h"
#include "policies/cost/tuned_table.h"
#include "policies/seam/work_list.h"

namespace concert::policies {

// Half, in whole groups of 8 where there are that many: 64 of 132. On a quarter small GEMMs of the
// higher class take two rounds (ADR 13, "Classes"). The price: while a higher class is active, a
// lower one that could use all SMs takes up to twice as long.
constexpr int ReserveOf(int sm_count) {
  const int half = sm_count / 2;
  return half >= 8 ? half / 8 * 8 : std::max(1, half);
}

// That launches of a lower class keep to while a higher one is active, and those of a higher one
// beside a lower: the budgets on which GEMMs are tuned.
constexpr std::array<int, 2> ClassBudgetsOf(int sm_count) {
  return {std::max(1, sm_count - ReserveOf(sm_count)), ReserveOf(sm_count)};
}

// Which SMs a plan may use. kLate: all, but those of collectives only when they are expected to
// end.
enum class Budget : uint8_t { kAll, kBesideReserve, kReserve, kBesideCollective, kLate };

// Allocates nothing after construction. Not thread-safe.
class SmBudgets {
 public:
  // `tuned` may be null and must outlive this.
  SmBudgets(const DeviceModel& device, const TunedTable* tuned);

  // As the constructor's.
  void UseTuned(const TunedTable* tuned) {
    for (CostMemo& memo : memos_) memo.UseTuned(tuned);
  }

  // From now on kBesideCollective leaves collectives so many SMs, which kLate has late.
  void LeaveToCollectives(int sms);
  // How late those are, in steps of a quarter of an octave, so that about the same is planned as
  // the same.
  void UseLate(float late_us);

  const DeviceModel& device() const { return device_; }
  // What ops cost alone. Of kLate: as of kAll.
  CostMemo& MemoOf(Budget budget) {
    return memos_[budget == Budget::kLate ? 0 : static_cast<int>(budget)];
  }
  // That a launch is to keep to; 0: none.
  int SmsOf(Budget budget) const {
    return budget == Budget::kLate ? 0 : sms_[static_cast<int>(budget)];
  }
  SmSet SetOf(Budget budget) const {
    return budget == Budget::kLate ? SmSet::Late(held_sms_, LateUs()) : SmSet(SmsOf(budget));
  }
  // A number of 24 bits for SetOf, the same for the same.
  uint32_t KeyOf(Budget budget) const {
    const bool late = budget == Budget::kLate;
    const auto sms = static_cast<uint32_t>(late ? held_sms_ : SmsOf(budget));
    return (late ? late_step_ + 1 : 0) << 12 | sms;
  }

 private:
  static constexpr int kMemoCount = 4;

  float LateUs() const;

  const DeviceModel device_;
  std::array<int, kMemoCount> sms_;  // by Budget
  std::array<CostMemo, kMemoCount> memos_;
  int held_sms_ = 0;
  uint32_t late_step_ = 0;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_SM_BUDGETS_H_
