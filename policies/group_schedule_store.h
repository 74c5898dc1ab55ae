// The schedules planned lately and the arena of their items, in fixed memory.
#ifndef CONCERT_POLICIES_GROUP_SCHEDULE_STORE_H_
#define CONCERT_POLICIES_GROUP_SCHEDULE_STORE_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "policies/group_cost.h"
#include "policies/group_schedule.h"
#include "policies/tuned_table.h"

namespace concert::policies {

// What a schedule was made for.
struct GroupSignature {
  std::span<const Problem> problems;
  int blocks = 0;
  GroupGoal goal = GroupGoal::kLatency;
  uint64_t hash = 0;  // of the above

  static GroupSignature Of(std::span<const Problem> problems, int blocks, GroupGoal goal);
};

// Slots and arena are rings: the oldest schedules go first. Not thread-safe.
class GroupScheduleStore {
 public:
  GroupScheduleStore();

  // Compares whole signatures: a find never depends on the hash. Null: none, or one so old that it
  // may have to make room soon: what is found stays for half as long as what is new.
  const GroupSchedule* Find(const GroupSignature& signature) const;

  // Where a new schedule goes: `schedule` has its id, slot, first_item and pointers; the rest is
  // the caller's to fill in before anything else is asked of the store.
  struct Place {
    GroupSchedule* schedule;
    GroupItem* items;  // [item_count]
    GroupTile* tiles;  // [problems]
    float* ends_us;    // [problems]
  };
  // REQUIRES: 1 to kMaxGroupItems items; Find() has found none of this signature.
  Place Add(const GroupSignature& signature, uint32_t item_count);

 private:
  static constexpr uint32_t kBuckets = 2 * kGroupScheduleSlots;
  static constexpr uint16_t kNone = 0xffff;
  static_assert(kGroupScheduleSlots < kNone);

  struct Slot {
    GroupSchedule schedule;
    uint64_t hash = 0;
    int blocks = 0;  // asked for
    GroupGoal goal = GroupGoal::kLatency;
    uint32_t end_item = 0;      // of the arena
    uint64_t items_before = 0;  // taken from the arena before its own
    uint16_t next = kNone;      // in its bucket
    std::array<Problem, kMaxGroupProblems> problems;
    std::array<GroupTile, kMaxGroupProblems> tiles;
    std::array<float, kMaxGroupProblems> ends_us;
  };

  uint32_t TakeItems(uint32_t count);
  void DropOldest();

  std::vector<Slot> slots_;
  std::vector<GroupItem> arena_;
  std::array<uint16_t, kBuckets> buckets_;
  uint32_t oldest_ = 0, kept_ = 0;  // slots [oldest_, oldest_ + kept_), around
  uint32_t next_item_ = 0;
  uint64_t items_taken_ = 0;
  uint64_t next_id_;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_GROUP_SCHEDULE_STORE_H_
