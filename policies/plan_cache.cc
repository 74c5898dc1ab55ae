#include "policies/plan_cache.h"

#include <algorithm>

#include "policies/cost_memo.h"

namespace concert::policies {
namespace {

// Order matters: a chain of multiplications, FNV-1a over 64-bit words.
constexpr uint64_t kFnvOffset = 0xcbf29ce484222325u;
constexpr uint64_t kFnvPrime = 0x100000001b3u;
// Tells a GEMM that runs from a candidate of the same shape.
constexpr uint64_t kFrontSalt = 0x9e3779b97f4a7c15u;

// The multiplications leave the low bits of a hash the weakest: fold the high ones in.
constexpr uint64_t Fold(uint64_t hash) { return hash ^ hash >> 32; }

constexpr uint64_t Chain(uint64_t hash, uint64_t value) { return (hash ^ value) * kFnvPrime; }

}  // namespace

bool operator==(const Signature& a, const Signature& b) {
  return a.gemm_count == b.gemm_count && a.front_count == b.front_count &&
         std::equal(a.gemms.begin(), a.gemms.begin() + a.gemm_count, b.gemms.begin()) &&
         std::equal(a.fronts.begin(), a.fronts.begin() + a.front_count, b.fronts.begin());
}

void Signature::Clear() {
  gemm_count = front_count = 0;
  hash = kFnvOffset;
}

void Signature::AddGemm(const Work& work, uint64_t work_hash) {
  gemms[gemm_count++] = work;
  hash = Chain(hash, work_hash);
}

void Signature::AddFront(const Work& work, int follower) {
  fronts[front_count++] = {.work = work, .follower = static_cast<int8_t>(follower)};
  hash = Chain(Chain(hash, HashWork(work)), kFrontSalt + static_cast<uint8_t>(follower));
}

std::optional<Choice> PlanCache::Find(const Signature& signature) const {
  const Slot& slot = slots_[Fold(signature.hash) % kSlots];
  if (slot.signature.gemm_count == 0 || !(slot.signature == signature)) return std::nullopt;
  return slot.choice;
}

void PlanCache::Insert(const Signature& signature, Choice choice) {
  slots_[Fold(signature.hash) % kSlots] = {.signature = signature, .choice = choice};
}

}  // namespace concert::policies
