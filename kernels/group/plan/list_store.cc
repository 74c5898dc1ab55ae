#include "kernels/group/plan/list_store.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "policies/seam/hash.h"

namespace concert::kernels {
namespace {

// Every store has ids of its own, so that a device never takes one compiler's work list for
// another's. 2^40 per store are enough for a million a second for twelve days, and 2^24 stores are
// more than a process makes.
uint64_t FirstId() {
  static std::atomic<uint64_t> stores{0};
  return (stores.fetch_add(1, std::memory_order_relaxed) << kGroupStoreShift) + 1;
}

}  // namespace

WorkListSignature WorkListSignature::Of(std::span<const policies::Problem> problems,
                                        const LaunchBlocks& blocks, policies::GroupGoal goal) {
  uint64_t hash =
      policies::Chain(0, static_cast<uint64_t>(goal) << 32 | static_cast<uint32_t>(blocks.count));
  if (blocks.late > 0) {
    const uint64_t late = std::bit_cast<uint32_t>(blocks.late_us);
    hash = policies::Chain(hash, late << 32 | static_cast<uint32_t>(blocks.late));
  }
  for (const policies::Problem& problem : problems)
    hash = policies::Chain(hash, policies::HashProblem(problem));
  return {problems, blocks, goal, hash};
}

WorkListStore::WorkListStore()
    : slots_(kWorkListSlots),
      arena_(kGroupArenaItems),
      next_id_(FirstId()),
      young_id_(next_id_),
      handed_out_from_(next_id_) {
  buckets_.fill(kNone);
}

const GroupWorkList* WorkListStore::Find(const WorkListSignature& signature) const {
  for (uint16_t i = buckets_[signature.hash % kBuckets]; i != kNone; i = slots_[i].next) {
    const Slot& slot = slots_[i];
    if (slot.hash == signature.hash && slot.blocks == signature.blocks &&
        slot.goal == signature.goal && slot.work_list.problem_count == signature.problems.size() &&
        std::equal(signature.problems.begin(), signature.problems.end(), slot.problems.begin())) {
      return &slot.work_list;
    }
  }
  return nullptr;
}

WorkListStore::Place WorkListStore::Add(const WorkListSignature& signature, uint32_t item_count) {
  if (kept_ == kWorkListSlots && !DropOldest()) return {};
  const std::optional<uint32_t> taken = TakeItems(item_count);
  if (!taken.has_value()) return {};
  const uint32_t first_item = *taken;
  const uint32_t index = (oldest_ + kept_++) % kWorkListSlots;
  Slot& slot = slots_[index];
  uint16_t& bucket = buckets_[signature.hash % kBuckets];
  slot.hash = signature.hash;
  slot.blocks = signature.blocks;
  slot.goal = signature.goal;
  slot.end_item = first_item + item_count;
  slot.items_before = items_taken_;
  items_taken_ += item_count;
  slot.next = bucket;
  bucket = static_cast<uint16_t>(index);
  std::copy(signature.problems.begin(), signature.problems.end(), slot.problems.begin());
  GroupWorkList& list = slot.work_list;
  const uint32_t version = list.version;
  list = {};
  list.version = version;
  list.id = next_id_++;
  list.slot = static_cast<uint16_t>(index);
  list.first_item = first_item;
  list.item_count = item_count;
  list.items = &arena_[first_item];
  list.tiles = slot.tiles.data();
  list.ends_us = slot.ends_us.data();
  RetireOld();
  return {&list, &arena_[first_item], slot.tiles.data(), slot.ends_us.data()};
}

// A work list's items lie in a row: one that does not fit before the arena's end begins at 0.
std::optional<uint32_t> WorkListStore::TakeItems(uint32_t count) {
  const bool wraps = next_item_ + count > kGroupArenaItems;
  // Those at the end would otherwise stay while newer ones at the start go.
  const auto drop_from = [this](uint32_t begin, uint32_t end) {
    while (kept_ > 0) {
      const Slot& slot = slots_[oldest_];
      if (slot.end_item <= begin || slot.work_list.first_item >= end) return true;
      if (!DropOldest()) return false;
    }
    return true;
  };
  if (wraps) {
    if (!drop_from(next_item_, kGroupArenaItems)) return std::nullopt;
    next_item_ = 0;
  }
  if (!drop_from(next_item_, next_item_ + count)) return std::nullopt;
  next_item_ += count;
  return next_item_ - count;
}

void WorkListStore::RetireOld() {
  for (; IsOld(slots_[young_]); young_ = (young_ + 1) % kWorkListSlots) {
    Slot& slot = slots_[young_];
    ++slot.work_list.version;
    uint16_t* link = &buckets_[slot.hash % kBuckets];
    while (*link != young_) link = &slots_[*link].next;
    *link = slot.next;
  }
  young_id_ = slots_[young_].work_list.id;
}

bool WorkListStore::DropOldest() {
  if (slots_[oldest_].work_list.id >= handed_out_from_) return false;
  oldest_ = (oldest_ + 1) % kWorkListSlots;
  --kept_;
  return true;
}

}  // namespace concert::kernels
