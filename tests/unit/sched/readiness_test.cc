#include "daemon/sched/readiness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "tests/support/seed.h"

namespace concert::daemon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(WaitHeapTest, TheSmallestValueIsTheRootWhateverIsInsertedAndRemoved) {
  const uint32_t seed = test::Seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  constexpr uint32_t kNodes = 500;
  WaitHeap heap(kNodes);
  WaitHeap::Node root = WaitHeap::kEmpty;
  std::map<WaitHeap::Node, uint64_t> in;
  for (int i = 0; i < 20'000; ++i) {
    const auto node = static_cast<WaitHeap::Node>(random() % kNodes);
    if (in.erase(node) > 0) {
      heap.Remove(root, node);
    } else {
      in[node] = random() % 50;
      heap.Insert(root, node, in[node], 7);
      EXPECT_EQ(heap.owner(node), 7u);
    }
    if (in.empty()) {
      ASSERT_EQ(root, WaitHeap::kEmpty);
      continue;
    }
    const auto least = std::min_element(
        in.begin(), in.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    ASSERT_EQ(heap.value(root), least->second);
    ASSERT_EQ(in.count(root), 1u);
  }
  while (root != WaitHeap::kEmpty) {
    ASSERT_EQ(in.erase(root), 1u);
    heap.Remove(root, root);
  }
  EXPECT_TRUE(in.empty());
}

class ReadinessTest : public testing::Test {
 protected:
  static constexpr uint32_t kQueues = 40;
  static constexpr Readiness::Time kTimeout = 1'000;
  ReadinessTest() {
    for (QueueId queue = 0; queue < kQueues; ++queue) readiness_.Add(queue, 0);
  }
  std::vector<QueueId> News() {
    std::vector<QueueId> news;
    for (QueueId queue = readiness_.Next(); queue != kNone; queue = readiness_.Next()) {
      news.push_back(queue);
    }
    return news;
  }
  void Block(QueueId queue, std::vector<Readiness::Wait> waits, int watched = 0) {
    readiness_.Block(queue, waits, watched, now_);
  }

  Readiness readiness_{kQueues, kTimeout};
  Readiness::Time now_ = 0;
};

TEST_F(ReadinessTest, TouchedQueuesComeOnceAndInOrder) {
  for (const QueueId queue : {3, 1, 3, 2}) readiness_.Touch(queue);
  EXPECT_THAT(News(), ElementsAre(3, 1, 2));
}

TEST_F(ReadinessTest, AFrontHasNewsWhenItsLastWaitIsMet) {
  Block(1, {{2, 5}, {3, 1}}, /*watched=*/1);
  readiness_.Reach(2, 4);
  readiness_.Wake(now_);
  readiness_.Reach(2, 6);
  readiness_.Reach(3, 1);
  readiness_.Wake(now_);
  EXPECT_THAT(News(), IsEmpty());
  EXPECT_TRUE(readiness_.blocked(1));
  readiness_.WatchedMet(1);
  EXPECT_THAT(News(), ElementsAre(1));
  EXPECT_FALSE(readiness_.blocked(1));
}

TEST_F(ReadinessTest, AClosedCounterTellsThoseThatWaitForMore) {
  Block(1, {{2, 5}});
  Block(3, {{2, 2}});
  readiness_.Reach(2, 2);
  readiness_.Close(2);
  readiness_.Wake(now_);
  EXPECT_THAT(News(), ElementsAre(3, 1));
  EXPECT_FALSE(readiness_.blocked(3));
  EXPECT_TRUE(readiness_.unreachable(1));
}

TEST_F(ReadinessTest, WhatIsUnblockedIsNotWoken) {
  Block(1, {{2, 5}, {3, 5}});
  readiness_.Unblock(1);
  readiness_.Reach(2, 5);
  readiness_.Reach(3, 5);
  readiness_.Wake(now_ = 2 * kTimeout);
  EXPECT_THAT(News(), IsEmpty());
  EXPECT_EQ(readiness_.next_timeout(), Readiness::kNever);
}

TEST_F(ReadinessTest, OneCounterWithManyDueWaitsDoesNotHoldUpAnother) {
  for (QueueId queue = 2; queue < kQueues; ++queue) Block(queue, {{0, 1}});
  Block(0, {{1, 1}});
  readiness_.Reach(0, 1);
  readiness_.Reach(1, 1);
  readiness_.Wake(now_);
  const std::vector<QueueId> news = News();
  EXPECT_LT(std::find(news.begin(), news.end(), 0u) - news.begin(), 10);
  EXPECT_EQ(news.size(), kQueues - 1);
}

// Against a model that looks at everything.
TEST_F(ReadinessTest, WakesExactlyWhatAScanWould) {
  const uint32_t seed = test::Seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  struct Blocked {
    std::vector<Readiness::Wait> waits;
    int watched;
    Readiness::Time since;
  };
  std::map<QueueId, Blocked> blocked;
  std::vector<uint64_t> reached(kQueues);
  for (int i = 0; i < 20'000; ++i) {
    now_ += random() % 3;
    const auto queue = static_cast<QueueId>(random() % kQueues);
    switch (random() % 4) {
      case 0: {
        if (blocked.count(queue) > 0) break;
        Blocked front{.waits = {}, .watched = static_cast<int>(random() % 2), .since = now_};
        for (uint32_t n = 1 + random() % 3; n > 0; --n) {
          const auto other = static_cast<QueueId>(random() % kQueues);
          front.waits.push_back({other, reached[other] + 1 + random() % 5});
        }
        Block(queue, front.waits, front.watched);
        blocked[queue] = front;
        break;
      }
      case 1:
        readiness_.Reach(queue, ++reached[queue]);
        break;
      case 2:
        if (blocked.count(queue) > 0 && blocked[queue].watched > 0) {
          --blocked[queue].watched;
          readiness_.WatchedMet(queue);
        }
        break;
      default:
        do {
          readiness_.Wake(now_);
        } while (readiness_.waking());
        std::set<QueueId> expected;
        for (const auto& [id, front] : blocked) {
          const bool met = front.watched == 0 &&
                           std::all_of(front.waits.begin(), front.waits.end(), [&](auto& wait) {
                             return wait.value <= reached[wait.queue];
                           });
          if (met || front.since + kTimeout <= now_) expected.insert(id);
        }
        const std::vector<QueueId> news = News();
        ASSERT_EQ(std::set<QueueId>(news.begin(), news.end()), expected);
        for (const QueueId id : news) {
          if (readiness_.blocked(id)) {
            ASSERT_TRUE(readiness_.expired(id));
            readiness_.Unblock(id);
          }
          blocked.erase(id);
        }
    }
  }
}

}  // namespace
}  // namespace concert::daemon
