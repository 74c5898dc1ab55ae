#include "daemon/sched/watches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <utility>
#include <vector>

namespace concert::daemon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class WatchesTest : public testing::Test {
 protected:
  using Met = std::pair<OpId, int>;

  void Add(uint32_t word, OpId op, uint64_t value, uint8_t index = 0) {
    watches_.Add(homes_[word], words_[word], op, index, value);
  }
  // As a turn, with what the one before has read of cold words.
  std::vector<Met> Poll() {
    watches_.ReadCold(now_);
    return PollHot();
  }
  std::vector<Met> PollHot() {
    std::vector<Met> met;
    watches_.Poll(now_, [&](OpId op, uint8_t index) { met.emplace_back(op, index); });
    return met;
  }

  static constexpr uint32_t kWords = 5'000;
  std::vector<uint64_t> words_ = std::vector<uint64_t>(kWords);
  std::vector<Watches::WordId> homes_ = std::vector<Watches::WordId>(kWords, kNone);
  Watches watches_{1 << 16};
  Watches::Time now_ = 1'000'000'000;
};

TEST_F(WatchesTest, ReportsWhatAWordHasReached) {
  Add(0, 10, 5);
  Add(0, 11, 7, 3);
  Add(1, 12, 1);
  EXPECT_THAT(Poll(), IsEmpty());
  words_[0] = 6;
  EXPECT_THAT(Poll(), ElementsAre(Met{10, 0}));
  words_[0] = 9;
  EXPECT_THAT(Poll(), ElementsAre(Met{11, 3}));
  EXPECT_EQ(homes_[0], kNone);  // nothing waits for it any more
  EXPECT_EQ(watches_.word_count(), 1u);
}

TEST_F(WatchesTest, ManyWaitsForAWordAreOneRead) {
  for (OpId op = 0; op < 10'000; ++op) Add(0, op, 1 + op % 7);
  const uint64_t before = watches_.reads();
  Poll();
  EXPECT_EQ(watches_.reads() - before, 1u);
  words_[0] = 100;
  std::set<OpId> seen;
  for (int i = 0; i < 1'000; ++i) {
    const std::vector<Met> met = Poll();
    EXPECT_LE(met.size(), Watches::kMetPerTurn + 8);
    for (const Met& one : met) EXPECT_TRUE(seen.insert(one.first).second);
  }
  EXPECT_EQ(seen.size(), 10'000u);
  EXPECT_TRUE(watches_.empty());
}

TEST_F(WatchesTest, ATurnReadsABoundedNumberOfWords) {
  for (uint32_t word = 0; word < kWords; ++word) Add(word, word, 1);
  Poll();
  // Turns of a busy dispatcher: 2 us each.
  const uint64_t before = watches_.reads();
  for (int i = 0; i < 1'000; ++i, now_ += 2'000) Poll();
  EXPECT_LE(watches_.reads() - before, 1'000 * (Watches::kHotPerTurn + 2));
  // However long it slept.
  now_ += 1'000'000'000;
  const uint64_t asleep = watches_.reads();
  Poll();
  EXPECT_LE(watches_.reads() - asleep, Watches::kHotPerTurn + Watches::kColdPerTurn);
}

TEST_F(WatchesTest, ColdWordsAreReadWhenItIsTheirTurn) {
  for (uint32_t word = 0; word < kWords; ++word) Add(word, word, 1);
  now_ += 1'000'000'000;
  const uint64_t before = watches_.reads();
  EXPECT_THAT(PollHot(), IsEmpty());
  EXPECT_LE(watches_.reads() - before, Watches::kHotPerTurn);
  words_[0] = 1;  // the coldest
  EXPECT_TRUE(watches_.ReadCold(now_));
  EXPECT_LE(watches_.reads() - before, Watches::kHotPerTurn + Watches::kColdPerTurn);
  EXPECT_THAT(PollHot(), ElementsAre(Met{0, 0}));
  EXPECT_FALSE(watches_.ReadCold(now_));
}

TEST_F(WatchesTest, EveryWordIsSeenToMoveWithinTheBound) {
  for (uint32_t word = 0; word < kWords; ++word) Add(word, word, 1);
  for (int i = 0; i < 10'000; ++i, now_ += 2'000) Poll();
  const Watches::Time bound =
      std::max(Watches::kColdPeriodNs, kWords * Watches::kColdPollNs) + 10'000;
  for (const uint32_t word : {0u, 1'234u, kWords - 1}) {
    words_[word] = 1;
    const Watches::Time begin = now_;
    std::vector<Met> met;
    for (; met.empty(); now_ += 2'000) met = Poll();
    EXPECT_THAT(met, ElementsAre(Met{word, 0}));
    EXPECT_LE(now_ - begin, bound) << word;
  }
}

TEST_F(WatchesTest, AWordThatMovesIsReadOftenAgain) {
  for (uint32_t word = 0; word < kWords; ++word) Add(word, word, 1'000);
  for (int i = 0; i < 10'000; ++i, now_ += 2'000) Poll();
  words_[7] = 1;
  for (int i = 0; i < 10'000; ++i, now_ += 2'000) Poll();
  words_[7] = 1'000;
  std::vector<Met> met;
  int turns = 0;
  for (; met.empty(); ++turns, now_ += 2'000) met = Poll();
  EXPECT_LE(turns, static_cast<int>(Watches::kHotWords / Watches::kHotPerTurn) + 1);
}

TEST_F(WatchesTest, DroppedWaitsAreNotReported) {
  Add(0, 1, 1);
  Add(0, 2, 1);
  watches_.Drop(1, 0);
  words_[0] = 1;
  EXPECT_THAT(Poll(), ElementsAre(Met{2, 0}));
  Add(0, 3, 5);
  watches_.Drop(3, 0);
  EXPECT_TRUE(watches_.empty());
}

TEST_F(WatchesTest, AWordThatGoesAwayEndsItsWaitsInPortions) {
  for (OpId op = 0; op < 10; ++op) Add(0, op, 1 + op);
  words_[0] = 4;
  std::vector<OpId> met, lost;
  while (homes_[0] != kNone) {
    watches_.End(homes_[0], 3, [&](OpId op, uint8_t, uint64_t awaited, uint64_t value) {
      (value >= awaited ? met : lost).push_back(op);
    });
  }
  EXPECT_THAT(met, UnorderedElementsAre(0, 1, 2, 3));
  EXPECT_EQ(lost.size(), 6u);
  EXPECT_TRUE(watches_.empty());
}

TEST_F(WatchesTest, AnIdleDispatcherLooksAtTheHotWords) {
  Add(0, 1, 1);
  Poll();
  EXPECT_FALSE(watches_.HasWork());
  words_[0] = 1;
  EXPECT_TRUE(watches_.HasWork());
}

}  // namespace
}  // namespace concert::daemon
