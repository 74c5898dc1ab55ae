// The work lists planned lately and the arena of their items, in fixed memory.
#ifndef CONCERT_KERNELS_GROUP_PLAN_LIST_STORE_H_
#define CONCERT_KERNELS_GROUP_PLAN_LIST_STORE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/group/plan/cost.h"
#include "kernels/group/plan/packing.h"
#include "kernels/group/plan/work_list.h"
#include "policies/cost/tuned_table.h"

namespace concert::kernels {

// What a work list was made for.
struct WorkListSignature {
  std::span<const policies::Problem> problems;
  LaunchBlocks blocks;
  policies::GroupGoal goal = policies::GroupGoal::kLatency;
  uint64_t hash = 0;  // of the above

  static WorkListSignature Of(std::span<const policies::Problem> problems,
                              const LaunchBlocks& blocks, policies::GroupGoal goal);
};

// Slots and arena are rings: the oldest work lists go first, but none that may be handed out. Not
// thread-safe.
class WorkListStore {
 public:
  WorkListStore();

  // Nothing is handed out any more.
  void Reclaim() { handed_out_from_ = young_id_; }
  // Compares whole signatures: a find never depends on the hash. Null: none, or one that is old.
  const GroupWorkList* Find(const WorkListSignature& signature) const;

  // Where a new work list goes: `work_list` has its id, slot, first_item and pointers; the rest is
  // the caller's to fill in before anything else is asked of the store.
  struct Place {
    GroupWorkList* work_list;
    GroupItem* items;  // [item_count]
    GroupTile* tiles;  // [problems]
    float* ends_us;    // [problems]
  };
  // Null if what would have to go is handed out. REQUIRES: 1 to kMaxGroupItems items; Find() has
  // found none of this signature.
  Place Add(const WorkListSignature& signature, uint32_t item_count);

 private:
  static constexpr uint32_t kBuckets = 2 * kWorkListSlots;
  static constexpr uint16_t kNone = 0xffff;
  static_assert(kWorkListSlots < kNone);

  struct Slot {
    GroupWorkList work_list;
    uint64_t hash = 0;
    LaunchBlocks blocks;  // asked for
    policies::GroupGoal goal = policies::GroupGoal::kLatency;
    uint32_t end_item = 0;      // of the arena
    uint64_t items_before = 0;  // taken from the arena before its own
    uint16_t next = kNone;      // in its bucket
    std::array<policies::Problem, kMaxGroupProblems> problems;
    std::array<GroupTile, kMaxGroupProblems> tiles;
    std::array<float, kMaxGroupProblems> ends_us;
  };

  // In the older half of a ring. Such lists are handed out no more, and what is used is made anew
  // before its turn to go comes.
  bool IsOld(const Slot& slot) const {
    return next_id_ - slot.work_list.id > kWorkListSlots / 2 ||
           items_taken_ - slot.items_before > kGroupArenaItems / 2;
  }
  void RetireOld();
  std::optional<uint32_t> TakeItems(uint32_t count);
  bool DropOldest();

  std::vector<Slot> slots_;
  std::vector<GroupItem> arena_;
  std::array<uint16_t, kBuckets> buckets_;
  uint32_t oldest_ = 0, kept_ = 0;  // slots [oldest_, oldest_ + kept_), around
  uint32_t next_item_ = 0;
  uint64_t items_taken_ = 0;
  uint64_t next_id_;
  uint32_t young_ = 0;        // slot of the oldest that is not old
  uint64_t young_id_;         // its list's
  uint64_t handed_out_from_;  // lists from this one on may be handed out
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_GROUP_PLAN_LIST_STORE_H_
