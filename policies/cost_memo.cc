#include "policies/cost_memo.h"

namespace concert::policies {
namespace {

constexpr uint64_t Pack(uint32_t high, uint32_t low) { return uint64_t{high} << 32 | low; }

// Multiply-and-fold with the odd constant of the golden ratio (Knuth, TAOCP vol. 3, 6.4).
constexpr uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 32);
}

}  // namespace

uint64_t HashWork(const Work& work) {
  const uint32_t kind = static_cast<uint32_t>(work.category) << 24 |
                        static_cast<uint32_t>(work.dtype) << 16 | uint32_t{work.allow_tf32} << 8 |
                        work.ranks;
  uint64_t hash = Mix(kind, Pack(work.m, work.n));
  hash = Mix(hash, Pack(work.k, work.batch));
  hash = Mix(hash, work.flops);
  hash = Mix(hash, work.hbm_bytes);
  return Mix(hash, work.link_bytes);
}

const OpCost& CostMemo::Of(const Work& work) {
  Slot& slot = slots_[HashWork(work) % kSlots];
  if (!slot.used || !(slot.work == work)) {
    slot = {.used = true, .work = work, .cost = CostOf(device_, work)};
  }
  return slot.cost;
}

}  // namespace concert::policies
