#include "policies/auto/plan_cache.h"

namespace concert::policies {

void Signature::Start(uint32_t context) {
  count_ = 0;
  context_ = context;
  hash_ = Chain(0, context + 1);
  most_flops_ = most_work_hash_ = 0;
}

PlanCache::PlanCache()
    : slots_(std::make_unique<Slot[]>(kSlots)), keys_(std::make_unique<Key[]>(kKeys)) {}

bool PlanCache::Holds(const Slot& slot, const Signature& signature) const {
  const std::span<const Work* const> works = signature.works();
  if (!slot.used || slot.hash != signature.hash() || slot.context != signature.context() ||
      slot.count != works.size() || next_key_ - slot.first_key > kKeys) {
    return false;
  }
  for (size_t i = 0; i < works.size(); ++i) {
    const Key& key = keys_[(slot.first_key + i) % kKeys];
    if (key.tag != signature.tags()[i] || !(key.work == *works[i])) return false;
  }
  return true;
}

LaunchSplit* PlanCache::Find(const Signature& signature) {
  Slot& slot = SlotOf(signature.hash());
  return Holds(slot, signature) ? &slot.split : nullptr;
}

LaunchSplit& PlanCache::Insert(const Signature& signature, const LaunchSplit& split) {
  Slot& slot = SlotOf(signature.hash());
  const std::span<const Work* const> works = signature.works();
  slot.used = true;
  slot.count = static_cast<uint16_t>(works.size());
  slot.context = signature.context();
  slot.hash = signature.hash();
  slot.first_key = next_key_;
  slot.split = split;
  for (size_t i = 0; i < works.size(); ++i) {
    keys_[next_key_++ % kKeys] = {.work = *works[i], .tag = signature.tags()[i]};
  }
  return slot.split;
}

void PlanCache::Drop(uint64_t hash) {
  Slot& slot = SlotOf(hash);
  if (slot.hash == hash) slot.used = false;
}

}  // namespace concert::policies
