#include "policies/group_schedule_store.h"

#include <algorithm>
#include <atomic>

#include "policies/group_shape.h"

namespace concert::policies {
namespace {

constexpr uint64_t kFnvOffset = 0xcbf29ce484222325u;
constexpr uint64_t kFnvPrime = 0x100000001b3u;

// Every store has ids of its own, so that a device never takes one planner's schedule for
// another's. 2^40 per store are enough for a million a second for twelve days, and 2^24 stores are
// more than a process makes.
uint64_t FirstId() {
  static std::atomic<uint64_t> stores{0};
  return (stores.fetch_add(1, std::memory_order_relaxed) << kGroupStoreShift) + 1;
}

}  // namespace

GroupSignature GroupSignature::Of(std::span<const Problem> problems, int blocks, GroupGoal goal) {
  uint64_t hash = kFnvOffset ^ static_cast<uint64_t>(blocks) ^ static_cast<uint64_t>(goal) << 32;
  for (const Problem& problem : problems) hash = (hash ^ HashShape(problem)) * kFnvPrime;
  return {problems, blocks, goal, hash ^ hash >> 32};
}

GroupScheduleStore::GroupScheduleStore()
    : slots_(kGroupScheduleSlots), arena_(kGroupArenaItems), next_id_(FirstId()) {
  buckets_.fill(kNone);
}

const GroupSchedule* GroupScheduleStore::Find(const GroupSignature& signature) const {
  for (uint16_t i = buckets_[signature.hash % kBuckets]; i != kNone; i = slots_[i].next) {
    const Slot& slot = slots_[i];
    if (next_id_ - slot.schedule.id > kGroupScheduleSlots / 2 ||
        items_taken_ - slot.items_before > kGroupArenaItems / 2) {
      continue;
    }
    if (slot.hash == signature.hash && slot.blocks == signature.blocks &&
        slot.goal == signature.goal && slot.schedule.problem_count == signature.problems.size() &&
        std::equal(signature.problems.begin(), signature.problems.end(), slot.problems.begin())) {
      return &slot.schedule;
    }
  }
  return nullptr;
}

GroupScheduleStore::Place GroupScheduleStore::Add(const GroupSignature& signature,
                                                  uint32_t item_count) {
  if (kept_ == kGroupScheduleSlots) DropOldest();
  const uint32_t first_item = TakeItems(item_count);
  const uint32_t index = (oldest_ + kept_++) % kGroupScheduleSlots;
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
  slot.schedule = {.id = next_id_++,
                   .slot = static_cast<uint16_t>(index),
                   .first_item = first_item,
                   .item_count = item_count,
                   .items = &arena_[first_item],
                   .tiles = slot.tiles.data(),
                   .ends_us = slot.ends_us.data()};
  return {&slot.schedule, &arena_[first_item], slot.tiles.data(), slot.ends_us.data()};
}

// A schedule's items lie in a row: one that does not fit before the arena's end begins at 0.
uint32_t GroupScheduleStore::TakeItems(uint32_t count) {
  const bool wraps = next_item_ + count > kGroupArenaItems;
  // Those at the end would otherwise stay while newer ones at the start go.
  const auto drop_from = [this](uint32_t begin, uint32_t end) {
    while (kept_ > 0) {
      const Slot& slot = slots_[oldest_];
      if (slot.end_item <= begin || slot.schedule.first_item >= end) return;
      DropOldest();
    }
  };
  if (wraps) {
    drop_from(next_item_, kGroupArenaItems);
    next_item_ = 0;
  }
  const uint32_t first = next_item_;
  next_item_ += count;
  drop_from(first, next_item_);
  return first;
}

void GroupScheduleStore::DropOldest() {
  const Slot& slot = slots_[oldest_];
  uint16_t* link = &buckets_[slot.hash % kBuckets];
  while (*link != oldest_) link = &slots_[*link].next;
  *link = slot.next;
  oldest_ = (oldest_ + 1) % kGroupScheduleSlots;
  --kept_;
}

}  // namespace concert::policies
