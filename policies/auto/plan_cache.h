// What `auto` chose for signatures seen before. Fixed size; allocates nothing after construction.
#ifndef CONCERT_POLICIES_AUTO_PLAN_CACHE_H_
#define CONCERT_POLICIES_AUTO_PLAN_CACHE_H_

#include <array>
#include <cstdint>
#include <memory>

#include "policies/auto/split/launch_split.h"
#include "policies/cost/plan_tag.h"
#include "policies/seam/hash.h"
#include "policies/seam/lanes.h"
#include "policies/seam/snapshot.h"
#include "policies/seam/work.h"

namespace concert::policies {

// All that a choice depends on, and nothing else: lane numbers, sessions' names and times are left
// out, so that a steady load repeats a few signatures. Points to works of the snapshot.
class Signature {
 public:
  static constexpr int kMaxOps = kMaxReady + kNormalLaneCount + kHighLaneCount;

  // `context`: what the choice depends on besides ops.
  void Start(uint32_t context);
  // `work_hash` is HashWork(work). `tag`: what else there is to know of the op.
  void Add(const Work& work, uint64_t work_hash, uint8_t tag) {
    works_[count_] = &work;
    tags_[count_++] = tag;
    hash_ = Chain(hash_, work_hash + tag);
    if (work.flops > most_flops_) most_flops_ = work.flops, most_work_hash_ = work_hash;
  }

  std::span<const Work* const> works() const { return {works_.data(), count_}; }
  const uint8_t* tags() const { return tags_.data(); }
  uint32_t context() const { return context_; }
  // Of all of the above, in order. Leaves room for the rest of a plan's tag.
  uint64_t hash() const { return PlanTag::SignatureOf(hash_); }
  // What signatures have in common whose times mostly come from the same shape: the context and the
  // work with the most FLOPs.
  uint64_t family() const { return Chain(context_, most_work_hash_); }

 private:
  std::array<const Work*, kMaxOps> works_;
  std::array<uint8_t, kMaxOps> tags_;
  uint16_t count_ = 0;
  uint32_t context_ = 0;
  uint64_t hash_ = 0;
  uint64_t most_flops_ = 0, most_work_hash_ = 0;
};

// Direct-mapped: a new signature replaces the one in its slot. A hit compares the whole signature,
// so a choice never depends on the hash. Keys lie in a ring, where the newest overwrite the oldest.
// Not thread-safe.
class PlanCache {
 public:
  PlanCache();

  // Null if it is not known. Valid until the next Insert.
  LaunchSplit* Find(const Signature& signature);
  LaunchSplit& Insert(const Signature& signature, const LaunchSplit& split);
  // Forgets what has this hash.
  void Drop(uint64_t hash);

 private:
  static constexpr uint64_t kSlots = 512;
  static constexpr uint64_t kKeys = 1 << 15;  // ops: 64 in each slot
  struct Key {
    Work work;
    uint8_t tag = 0;
  };
  struct Slot {
    bool used = false;
    uint16_t count = 0;
    uint32_t context = 0;
    uint64_t hash = 0;
    uint64_t first_key = 0;  // counts up for ever; modulo kKeys it is the place in the ring
    LaunchSplit split;
  };

  Slot& SlotOf(uint64_t hash) { return slots_[hash / (PlanTag::kMask + 1) % kSlots]; }
  bool Holds(const Slot& slot, const Signature& signature) const;

  std::unique_ptr<Slot[]> slots_;
  std::unique_ptr<Key[]> keys_;
  uint64_t next_key_ = 0;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_PLAN_CACHE_H_
