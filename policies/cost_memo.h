// Remembers what ops cost, so that a shape seen before costs a lookup. Fixed size; allocates
// nothing.
#ifndef CONCERT_POLICIES_COST_MEMO_H_
#define CONCERT_POLICIES_COST_MEMO_H_

#include <array>
#include <cstdint>

#include "policies/cost_model.h"
#include "policies/work.h"

namespace concert::policies {

// 64 well-mixed bits of every field of `work`.
uint64_t HashWork(const Work& work);

// Direct-mapped: a new shape replaces the one in its slot. A hit compares the whole Work, so
// results never depend on the hash. Not thread-safe.
class CostMemo {
 public:
  explicit CostMemo(const DeviceModel& device) : device_(device) {}

  // The reference is valid until the next call. `hash` is HashWork(work).
  const OpCost& Of(const Work& work) { return Of(work, HashWork(work)); }
  const OpCost& Of(const Work& work, uint64_t hash);
  const DeviceModel& device() const { return device_; }

 private:
  static constexpr int kSlots = 1024;
  struct Slot {
    bool used = false;
    Work work;
    OpCost cost;
  };
  DeviceModel device_;
  std::array<Slot, kSlots> slots_;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_COST_MEMO_H_
