// Remembers what ops cost, so that a shape seen before costs a lookup. Fixed size; allocates
// nothing.
#ifndef CONCERT_POLICIES_COST_COST_MEMO_H_
#define CONCERT_POLICIES_COST_COST_MEMO_H_

#include <cstdint>

#include "policies/cost/cost_model.h"
#include "policies/cost/memo.h"
#include "policies/cost/tuned_table.h"
#include "policies/seam/hash.h"
#include "policies/seam/work.h"

namespace concert::policies {

// Not thread-safe.
class CostMemo {
 public:
  // Costs on `sm_count` SMs (0: all). A GEMM that `tuned` has alone on that budget takes the time
  // measured there. `tuned` may be null and must outlive this.
  explicit CostMemo(const DeviceModel& device, int sm_count = 0, const TunedTable* tuned = nullptr)
      : device_(device), sm_count_(sm_count), tuned_(tuned) {}

  // These forget all costs: from now on they come from `tuned`, or are of as many SMs (0: all).
  void UseTuned(const TunedTable* tuned) {
    tuned_ = tuned;
    costs_.Clear();
  }

  void UseSms(int sm_count) {
    sm_count_ = sm_count;
    costs_.Clear();
  }

  // The reference is valid until the next call. `hash` is HashWork(work).
  const OpCost& Of(const Work& work) { return Of(work, HashWork(work)); }
  const OpCost& Of(const Work& work, uint64_t hash) {
    return costs_.Of(work, hash, [&] { return Compute(work); });
  }
  const DeviceModel& device() const { return device_; }

 private:
  OpCost Compute(const Work& work) const;

  DeviceModel device_;
  int sm_count_;
  const TunedTable* tuned_;
  Memo<Work, OpCost, 1024> costs_;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_COST_COST_MEMO_H_
