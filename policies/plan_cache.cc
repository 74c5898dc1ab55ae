#include "policies/plan_cache.h"

#include <algorithm>

#include "policies/cost_memo.h"

namespace concert::policies {
namespace {

// Order matters: a chain of odd multiplications (FNV-1a over 64-bit words), folded at the end.
constexpr uint64_t kFnvOffset = 0xcbf29ce484222325u;
constexpr uint64_t kFnvPrime = 0x100000001b3u;

}  // namespace

bool operator==(const Signature& a, const Signature& b) {
  return a.gemm_count == b.gemm_count && a.front_count == b.front_count &&
         std::equal(a.gemms.begin(), a.gemms.begin() + a.gemm_count, b.gemms.begin()) &&
         std::equal(a.fronts.begin(), a.fronts.begin() + a.front_count, b.fronts.begin());
}

uint64_t HashSignature(const Signature& signature) {
  uint64_t hash = kFnvOffset ^ (uint64_t{signature.gemm_count} << 8 | signature.front_count);
  for (int i = 0; i < signature.gemm_count; ++i) {
    hash = (hash ^ HashWork(signature.gemms[i])) * kFnvPrime;
  }
  for (int i = 0; i < signature.front_count; ++i) {
    const Signature::Front& front = signature.fronts[i];
    hash = (hash ^ HashWork(front.work) ^ static_cast<uint8_t>(front.follower)) * kFnvPrime;
  }
  return hash ^ (hash >> 32);
}

std::optional<Choice> PlanCache::Find(const Signature& signature, uint64_t hash) const {
  const Slot& slot = slots_[hash % kSlots];
  if (slot.signature.gemm_count == 0 || !(slot.signature == signature)) return std::nullopt;
  return slot.choice;
}

void PlanCache::Insert(const Signature& signature, uint64_t hash, Choice choice) {
  slots_[hash % kSlots] = {.signature = signature, .choice = choice};
}

}  // namespace concert::policies
