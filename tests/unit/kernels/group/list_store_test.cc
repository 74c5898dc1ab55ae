#include "kernels/group/plan/list_store.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "tests/support/seed.h"

namespace concert::kernels {
namespace {

using policies::GroupGoal;
using policies::Problem;

std::vector<Problem> Launch(uint32_t n) { return {{.m = 8, .n = n, .k = 64}}; }

class WorkListStoreTest : public testing::Test {
 protected:
  // What was handed out before may go.
  const GroupWorkList* Add(uint32_t n, uint32_t items) {
    store_->Reclaim();
    return AddBeside(n, items);
  }
  const GroupWorkList* AddBeside(uint32_t n, uint32_t items) {
    const auto problems = Launch(n);
    const auto place =
        store_->Add(WorkListSignature::Of(problems, {.count = 132}, GroupGoal::kLatency), items);
    if (place.work_list == nullptr) return nullptr;
    place.work_list->problem_count = 1;
    for (uint32_t i = 0; i < items; ++i) place.items[i].k_end = static_cast<uint16_t>(n);
    return place.work_list;
  }
  const GroupWorkList* Find(uint32_t n, int blocks = 132,
                            GroupGoal goal = GroupGoal::kLatency) const {
    return store_->Find(WorkListSignature::Of(Launch(n), {.count = blocks}, goal));
  }

  std::unique_ptr<WorkListStore> store_ = std::make_unique<WorkListStore>();
};

TEST_F(WorkListStoreTest, FindsExactlyWhatWasAdded) {
  const GroupWorkList* work_list = Add(1, 100);
  EXPECT_EQ(Find(1), work_list);
  EXPECT_EQ(Find(1, 131), nullptr);
  EXPECT_EQ(Find(1, 132, GroupGoal::kThroughput), nullptr);
  EXPECT_EQ(Find(2), nullptr);
}

TEST_F(WorkListStoreTest, NeverTrustsAHash) {
  const GroupWorkList* work_list = Add(1, 100);
  const auto other = Launch(2);
  WorkListSignature forged = WorkListSignature::Of(Launch(1), {.count = 132}, GroupGoal::kLatency);
  forged.problems = other;
  EXPECT_EQ(store_->Find(forged), nullptr);
  EXPECT_EQ(Find(1), work_list);
}

TEST_F(WorkListStoreTest, KeepsAsManyAsItHasSlots) {
  std::set<uint16_t> slots;
  for (uint32_t n = 1; n <= kWorkListSlots; ++n) slots.insert(Add(n, 1)->slot);
  EXPECT_EQ(slots.size(), static_cast<size_t>(kWorkListSlots));
  // What is found stays for as many more as half of the slots.
  constexpr uint32_t kOldest = kWorkListSlots / 2 + 1;
  EXPECT_EQ(Find(kOldest - 1), nullptr);
  EXPECT_NE(Find(kOldest), nullptr);
  Add(kWorkListSlots + 1, 1);
  EXPECT_EQ(Find(kOldest), nullptr);
}

TEST_F(WorkListStoreTest, OldestMakeRoomInTheArena) {
  constexpr uint32_t kFull = kGroupArenaItems / kMaxGroupItems;
  for (uint32_t n = 1; n <= kFull; ++n) Add(n, kMaxGroupItems);
  // What is found stays for half of the arena.
  EXPECT_EQ(Find(kFull / 2), nullptr);
  for (uint32_t n = kFull / 2 + 1; n <= kFull; ++n) EXPECT_NE(Find(n), nullptr) << n;
  Add(kFull + 1, kMaxGroupItems);
  EXPECT_EQ(Find(kFull / 2 + 1), nullptr);
}

TEST_F(WorkListStoreTest, WhatIsHandedOutStays) {
  store_->Reclaim();
  const GroupWorkList* first = AddBeside(1, 100);
  const uint32_t version = first->version;
  constexpr uint32_t kFull = kGroupArenaItems / kMaxGroupItems;
  uint32_t added = 1;
  while (AddBeside(added + 1, kMaxGroupItems) != nullptr) ++added;
  EXPECT_EQ(added, kFull);  // of which the first is small: no row is left for another
  EXPECT_EQ(first->items[99].k_end, 1);
  EXPECT_EQ(AddBeside(kFull + 2, kMaxGroupItems), nullptr);
  EXPECT_NE(Add(kFull + 2, kMaxGroupItems), nullptr);
  EXPECT_NE(first->version, version);
}

TEST_F(WorkListStoreTest, SlotsOfWhatIsHandedOutAreNotUsedAgain) {
  store_->Reclaim();
  for (uint32_t n = 1; n <= kWorkListSlots; ++n) ASSERT_NE(AddBeside(n, 1), nullptr);
  EXPECT_EQ(AddBeside(kWorkListSlots + 1, 1), nullptr);
  EXPECT_NE(Add(kWorkListSlots + 1, 1), nullptr);
}

TEST_F(WorkListStoreTest, AListIsKeptUntilItIsOldOrGone) {
  const GroupWorkList* list = Add(1, 1);
  const uint32_t version = list->version;
  for (uint32_t n = 2; n <= kWorkListSlots / 2; ++n) {
    Add(n, 1);
    ASSERT_EQ(list->version, version) << n;
  }
  Add(kWorkListSlots, 1);
  EXPECT_NE(list->version, version);  // old
  for (uint32_t n = 2; n <= kWorkListSlots; ++n) Add(10'000 + n, 1);
  EXPECT_NE(list->version, version);  // another's, and that one is young
}

// Whatever is still found is whole, however the arena wraps, and the newest are always found.
TEST_F(WorkListStoreTest, WrapsWithoutDamage) {
  std::mt19937 random(test::Seed());
  std::deque<std::pair<uint32_t, uint32_t>> kept;  // n, items
  uint64_t last_id = 0;
  for (uint32_t n = 1; n <= 3000; ++n) {
    const uint32_t items = 1 + random() % (n % 3 == 0 ? kMaxGroupItems : 500);
    const GroupWorkList* added = Add(n, items);
    EXPECT_GT(added->id, last_id);
    last_id = added->id;
    kept.emplace_back(n, items);
    while (!kept.empty() && Find(kept.front().first) == nullptr) kept.pop_front();
    uint32_t kept_items = 0;
    for (const auto& [key, count] : kept) kept_items += count;
    // What may lie unused: a row at the arena's end, and one that just went.
    ASSERT_TRUE(kept.size() >= kWorkListSlots / 2 || n < 600 ||
                kept_items + 2 * kMaxGroupItems >= kGroupArenaItems / 2)
        << "seed " << test::Seed() << " n " << n << " kept " << kept_items;
    const auto& [key, count] = kept[random() % kept.size()];
    const GroupWorkList* found = Find(key);
    ASSERT_NE(found, nullptr) << "a newer one was dropped before an older one";
    ASSERT_EQ(found->items[0].k_end, static_cast<uint16_t>(key));
    ASSERT_EQ(found->items[count - 1].k_end, static_cast<uint16_t>(key));
  }
}

TEST_F(WorkListStoreTest, StoresShareNoIds) {
  WorkListStore other;
  const auto problems = Launch(1);
  const uint64_t one = Add(1, 1)->id;
  EXPECT_NE(one, other.Add(WorkListSignature::Of(problems, {.count = 132}, GroupGoal::kLatency), 1)
                     .work_list->id);
}

}  // namespace
}  // namespace concert::kernels
