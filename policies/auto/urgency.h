// Which deadlines would be missed, and which of these can be met.
#ifndef CONCERT_POLICIES_AUTO_URGENCY_H_
#define CONCERT_POLICIES_AUTO_URGENCY_H_

#include <cstdint>
#include <span>

#include "policies/auto/scope.h"
#include "policies/cost/cost_memo.h"
#include "policies/cost/cost_model.h"

namespace concert::policies {

// What urgent ops take if they go first: those that share launches at least what all of them want
// of SMs and memory, the others one after the other.
class UrgentTime {
 public:
  // `sms`: of the budget; 0: all.
  explicit UrgentTime(const DeviceModel& device, int sms = 0)
      : floor_us_(device.kernel_floor_us),
        sm_share_(sms > 0 ? static_cast<double>(sms) / device.sm_count : 1) {}

  void Add(const OpCost& cost, bool shares);
  float us() const;

 private:
  double floor_us_, sm_share_;
  double serial_us_ = 0, longest_us_ = 0, sm_us_ = 0, hbm_us_ = 0;
};

// The scope's ops that would miss their deadlines, each of them ending at `end_us` from now, but
// could meet them if they went first: earliest deadline first for as long as all of them can, and
// no more than one plan is to have, since what follows has its turn in the next. What is late
// already is not hurried at the cost of others. `may_share`: ops that chain share launches.
// Fills in `found`, which has room for all of the scope, and returns how many there are.
int FindUrgent(const Scope& scope, std::span<const float> end_us, CostMemo& memo, UrgentTime urgent,
               bool may_share, std::span<uint16_t> found);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_URGENCY_H_
