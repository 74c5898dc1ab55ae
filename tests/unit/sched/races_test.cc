#include "daemon/sched/races.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "tests/support/seed.h"

namespace concert::daemon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Pair = std::pair<OpId, OpId>;  // earlier, later

constexpr uint32_t kMaxOps = 1024, kMaxQueues = 64;
constexpr uint64_t kCopyBytes = 100;  // of each copy

struct How {
  std::vector<OpId> waits = {};
  bool opaque = false;
  uint32_t session = 0;
};

// Ops are copies of 100 bytes, from address to address.
class RacesTest : public testing::Test {
 protected:
  OpId Submit(QueueId queue, uint64_t src, uint64_t dst, const How& how = {}) {
    const OpId id = pool_.Allocate();
    OpSlot& slot = pool_[id];
    slot.op.kind = CONCERT_OP_COPY;
    slot.op.work.runs_on = policies::RunsOn::kCopyEngine;
    slot.op.copy = {.src = src, .dst = dst, .bytes = kCopyBytes};
    Enqueue(id, queue, how);
    return id;
  }

  // A GEMM whose D is 64 rows of one element, a kilobyte apart, from `d` on.
  OpId SubmitColumn(QueueId queue, uint64_t d) {
    const OpId id = pool_.Allocate();
    OpSlot& slot = pool_[id];
    slot.op.kind = CONCERT_OP_GEMM;
    slot.op.work.runs_on = policies::RunsOn::kSms;
    slot.op.gemm = {.m = 64,
                    .n = 1,
                    .k = 1,
                    .batch = 1,
                    .a = 1'000'000,
                    .w = 2'000'000,
                    .d = d,
                    .lda = 1,
                    .ldw = 1,
                    .ldd = 256,
                    .dtype = kernels::Dtype::kFp32,
                    .d_dtype = kernels::Dtype::kFp32};
    Enqueue(id, queue, {});
    return id;
  }

  // A part of the queue's rank.
  OpId SubmitPart(QueueId queue, uint64_t src, uint64_t dst, uint64_t sequence) {
    const OpId id = pool_.Allocate();
    OpSlot& slot = pool_[id];
    slot.op.kind = CONCERT_OP_BROADCAST;
    slot.op.work.runs_on = policies::RunsOn::kLinks;
    slot.op.collective = {.communicator = 1 << 8 | queue,
                          .sequence = sequence,
                          .src = src,
                          .dst = dst,
                          .src_bytes = kCopyBytes,
                          .dst_bytes = kCopyBytes};
    Enqueue(id, queue, {});
    return id;
  }

  void Enqueue(OpId id, QueueId queue, const How& how) {
    OpSlot& slot = pool_[id];
    slot.queue = queue;
    slot.admission = ++admissions_;
    std::vector<OpId> direct = how.waits;
    if (!queues_[queue].empty()) direct.push_back(queues_[queue].back());
    queues_[queue].push_back(id);
    races_.Submit(id, how.session, direct, how.opaque);
  }

  // The queue's oldest op.
  void End(QueueId queue) {
    const OpId id = queues_[queue].front();
    queues_[queue].erase(queues_[queue].begin());
    races_.End(id);
    pool_.Free(id);
  }

  std::vector<Pair> Check() {
    std::vector<Pair> pairs;
    Races::Race race;
    const auto ended = [this](const OpSlot& slot) { return seen_.contains(slot.admission); };
    while (races_.Next(ended, race)) {
      pairs.emplace_back(race.earlier, race.later);
      last_ = race;
    }
    EXPECT_FALSE(races_.unchecked());
    return pairs;
  }

  OpPool pool_{kMaxOps};
  Races races_{pool_, kMaxOps, kMaxQueues};
  std::map<QueueId, std::vector<OpId>> queues_;
  uint64_t admissions_ = 0;
  std::set<uint64_t> seen_;  // admissions of ops whose end clients have seen
  Races::Race last_;
};

TEST_F(RacesTest, AReaderOfWhatAnotherQueueWrites) {
  const OpId writer = Submit(0, 0, 1000), reader = Submit(1, 1040, 5000);
  EXPECT_THAT(Check(), ElementsAre(Pair{writer, reader}));
  EXPECT_EQ(last_.earlier_access.field, CONCERT_FIELD_DST);
  EXPECT_EQ(last_.later_access.field, CONCERT_FIELD_SRC);
  EXPECT_EQ(last_.bytes, (kernels::ByteRange{1040, 1100}));
  EXPECT_THAT(Check(), IsEmpty());  // an op is checked once
}

TEST_F(RacesTest, AWriterOfWhatAnotherQueueReads) {
  const OpId reader = Submit(0, 1000, 5000), writer = Submit(1, 0, 1099);
  EXPECT_THAT(Check(), ElementsAre(Pair{reader, writer}));
  EXPECT_EQ(last_.bytes, (kernels::ByteRange{1099, 1100}));
}

TEST_F(RacesTest, TwoWriters) {
  const OpId first = Submit(0, 0, 1000), second = Submit(1, 2000, 1000);
  EXPECT_THAT(Check(), ElementsAre(Pair{first, second}));
}

// Of ops that are checked together, too, the later one is the one that was submitted later.
TEST_F(RacesTest, WhatCameLaterIsTheLaterOne) {
  const OpId first = Submit(0, 0, 1000), reader = Submit(1, 1000, 5000),
             last = Submit(2, 2000, 1000);
  EXPECT_THAT(Check(), ElementsAre(Pair{first, reader}, Pair{reader, last}));
}

TEST_F(RacesTest, ReadersOfTheSameBytesDoNotRace) {
  Submit(0, 1000, 2000);
  Submit(1, 1000, 3000);
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(RacesTest, NeighboursDoNotRace) {
  Submit(0, 0, 1000);
  Submit(1, 1100, 900);
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(RacesTest, AQueueIsAnOrder) {
  Submit(0, 0, 1000);
  Submit(0, 1000, 2000);
  Submit(0, 1000, 0);
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(RacesTest, AWaitIsAnOrder) {
  const OpId writer = Submit(0, 0, 1000);
  Submit(1, 1000, 2000, {.waits = {writer}});
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(RacesTest, AWaitForAnEarlierOpIsNoneForALaterOne) {
  const OpId first = Submit(0, 0, 1000), second = Submit(0, 0, 2000);
  const OpId reader = Submit(1, 2000, 3000, {.waits = {first}});
  EXPECT_THAT(Check(), ElementsAre(Pair{second, reader}));
}

TEST_F(RacesTest, AWaitForALaterOpOfTheQueueOrdersAllBeforeIt) {
  Submit(0, 0, 1000);
  const OpId later = Submit(0, 4000, 5000);
  Submit(1, 1000, 2000, {.waits = {later}});
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(RacesTest, OrderIsPassedOn) {
  const OpId writer = Submit(0, 0, 1000);
  const OpId middle = Submit(1, 4000, 5000, {.waits = {writer}});
  Submit(1, 4000, 6000);
  const OpId far = Submit(2, 7000, 8000, {.waits = {queues_[1].back()}});
  Submit(2, 1000, 2000);  // behind 0 by way of 2 and 1
  const OpId reader = Submit(3, 1000, 3000, {.waits = {middle, far}});
  EXPECT_THAT(Check(), IsEmpty());
  const OpId other = Submit(4, 1000, 9000);
  EXPECT_THAT(Check(), ElementsAre(Pair{writer, other}));
  EXPECT_NE(reader, other);
}

TEST_F(RacesTest, AnOrderBehindSomebodyElsesOpDoesNot) {
  const OpId writer = Submit(0, 0, 1000);
  const OpId stranger = Submit(1, 4000, 5000);
  const OpId reader = Submit(2, 1000, 2000, {.waits = {stranger}});
  EXPECT_THAT(Check(), ElementsAre(Pair{writer, reader}));
}

TEST_F(RacesTest, WhatHasEndedRacesWithNothing) {
  Submit(0, 0, 1000);
  EXPECT_THAT(Check(), IsEmpty());
  End(0);
  Submit(1, 1000, 2000);
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(RacesTest, WhatHasEndedUnseenIsAskedFor) {
  Submit(0, 0, 1000);
  EXPECT_THAT(Check(), IsEmpty());
  seen_.insert(admissions_);
  Submit(1, 1000, 2000);
  EXPECT_THAT(Check(), IsEmpty());
}

// A buffer that is used again and again: each use waits for the one before.
TEST_F(RacesTest, ABufferUsedInTurnsIsFine) {
  OpId last = Submit(0, 0, 1000);
  for (QueueId queue = 1; queue < 40; ++queue) {
    last = Submit(queue % 4, 1000, 2000 + queue * 1000, {.waits = {last}});
    last = Submit((queue + 1) % 4, 0, 1000, {.waits = {last}});
    EXPECT_THAT(Check(), IsEmpty());
  }
  const OpId early = Submit(5, 0, 1000);
  EXPECT_THAT(Check(), ElementsAre(Pair{last, early}));  // the nearest: a wait for it is enough
}

TEST_F(RacesTest, SessionsAreNotCompared) {
  Submit(0, 0, 1000);
  Submit(1, 1000, 2000, {.session = 1});
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(RacesTest, OrderGoesThroughOtherSessions) {
  const OpId writer = Submit(0, 0, 1000);
  const OpId theirs = Submit(1, 4000, 5000, {.waits = {writer}, .session = 1});
  Submit(2, 1000, 2000, {.waits = {theirs}});
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(RacesTest, FailedOpsTouchNothing) {
  const OpId failed = Submit(0, 0, 1000);
  pool_[failed].may_launch = false;
  Submit(1, 1000, 2000);
  EXPECT_THAT(Check(), IsEmpty());
  const OpId late = Submit(2, 0, 5000);
  const OpId reader = Submit(3, 5000, 2000);
  pool_[reader].may_launch = false;
  EXPECT_THAT(Check(), IsEmpty());
  EXPECT_NE(late, reader);
}

TEST_F(RacesTest, AnOpBehindWordsOfOthersIsOpaque) {
  Submit(0, 0, 1000);
  const OpId opaque = Submit(1, 1000, 2000, {.opaque = true});
  Submit(1, 1000, 3000);                       // behind it in its queue
  Submit(2, 1000, 4000, {.waits = {opaque}});  // behind it by a wait
  Submit(3, 2000, 5000);                       // it may wait for this
  EXPECT_THAT(Check(), IsEmpty());
  // What runs waits for nothing any more.
  pool_[opaque].state = OpState::kLaunched;
  const OpId reader = Submit(4, 2000, 6000);
  EXPECT_THAT(Check(), ElementsAre(Pair{opaque, reader}));
}

TEST_F(RacesTest, OpacityEndsWithWhatIsOpaque) {
  const OpId writer = Submit(0, 0, 1000);
  Submit(1, 4000, 5000, {.opaque = true});
  EXPECT_THAT(Check(), IsEmpty());
  End(1);
  const OpId reader = Submit(1, 1000, 2000);
  EXPECT_THAT(Check(), ElementsAre(Pair{writer, reader}));
}

// All ranks' ops before a collective may be before what is behind it.
TEST_F(RacesTest, WhatIsBehindACollectiveIsOpaqueAndItselfIsNot) {
  const OpId writer = Submit(0, 0, 1000);
  const OpId part = SubmitPart(1, 1000, 2000, /*sequence=*/0);
  EXPECT_THAT(Check(), ElementsAre(Pair{writer, part}));
  Submit(1, 1000, 3000);
  EXPECT_THAT(Check(), IsEmpty());
  const OpId reader = Submit(2, 2000, 4000);
  EXPECT_THAT(Check(), ElementsAre(Pair{part, reader}));
}

TEST_F(RacesTest, PartsOfOneCollectiveAreForTheRendezvous) {
  SubmitPart(0, 1000, 2000, /*sequence=*/0);
  SubmitPart(1, 2000, 3000, /*sequence=*/0);
  EXPECT_THAT(Check(), IsEmpty());
  const OpId other = SubmitPart(2, 3000, 4000, /*sequence=*/1);
  EXPECT_THAT(Check(), ElementsAre(Pair{1, other}));
}

TEST_F(RacesTest, AClockThatIsFullSaysNothing) {
  const OpId writer = Submit(40, 0, 1000);
  OpId last = Submit(0, 100'000, 200'000);
  for (QueueId queue = 1; queue <= Races::kMaxClock; ++queue)
    last = Submit(queue, 100'000, 200'000 + queue * 1000, {.waits = {last}});
  // The last is behind kMaxClock queues: still known.
  EXPECT_THAT(Check(), IsEmpty());
  const OpId known = Submit(Races::kMaxClock, 1000, 2000);
  EXPECT_THAT(Check(), ElementsAre(Pair{writer, known}));
  // One queue more.
  Submit(Races::kMaxClock + 1, 1000, 3000, {.waits = {known}});
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(RacesTest, AClockForgetsQueuesWhoseOpsHaveEnded) {
  const OpId writer = Submit(60, 0, 1000);
  OpId last = Submit(0, 100'000, 200'000);
  for (QueueId queue = 1; queue < 50; ++queue) {
    last = Submit(queue, 100'000, 200'000 + queue * 1000, {.waits = {last}});
    EXPECT_THAT(Check(), IsEmpty());
    End(queue - 1);
  }
  const OpId reader = Submit(50, 1000, 2000, {.waits = {last}});
  EXPECT_THAT(Check(), ElementsAre(Pair{writer, reader}));
}

// A queue's slot is used again: what followed the old queue's ops does not follow the new one's.
TEST_F(RacesTest, AQueueThatIsUsedAgainIsAnother) {
  const OpId old = Submit(0, 0, 1000);
  Submit(1, 4000, 5000, {.waits = {old}});
  EXPECT_THAT(Check(), IsEmpty());
  End(0);
  const OpId writer = Submit(0, 0, 1000), reader = Submit(1, 1000, 2000);
  EXPECT_THAT(Check(), ElementsAre(Pair{writer, reader}));
}

TEST_F(RacesTest, ComparesWithTheNewestOnly) {
  const OpId writer = Submit(0, 0, 1000);
  for (int i = 1; i < Races::kMaxComparisons; ++i) Submit(1, 4000, 5000);
  const OpId last_seen = Submit(2, 1000, 2000);
  EXPECT_THAT(Check(), ElementsAre(Pair{writer, last_seen}));
  Submit(3, 1000, 3000);
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(RacesTest, ColumnsSideBySideDoNotRace) {
  const OpId first = SubmitColumn(0, 5000);
  SubmitColumn(1, 5004);
  EXPECT_THAT(Check(), IsEmpty());
  const OpId same = SubmitColumn(2, 5000 + 1024);
  EXPECT_THAT(Check(), ElementsAre(Pair{first, same}));
}

TEST_F(RacesTest, LooksCloselyAtTheNewestNeighboursOnly) {
  const OpId first = SubmitColumn(0, 5000);
  for (QueueId queue = 1; queue < Races::kMaxCloseLooks; ++queue) {
    SubmitColumn(queue, 5000 + 4 * queue);
    EXPECT_THAT(Check(), IsEmpty());
  }
  const OpId same = SubmitColumn(60, 5000);
  EXPECT_THAT(Check(), ElementsAre(Pair{first, same}));
  pool_[same].may_launch = false;
  SubmitColumn(61, 5000 + 4 * 61);
  SubmitColumn(62, 5000);
  EXPECT_THAT(Check(), IsEmpty());
}

// Against the definition: reachability in the graph of all ops, and bytes one by one.
TEST_F(RacesTest, RandomOpsRaceWhereNoPathLeadsFromOneToTheOther) {
  std::mt19937 random(test::Seed());
  struct Known {
    OpId id;
    QueueId queue;
    uint64_t src, dst;
    bool ended = false;
    std::set<size_t> before;  // indices into known
  };
  std::vector<Known> known;
  std::map<QueueId, std::vector<size_t>> queues;
  const auto overlap = [](uint64_t a, uint64_t b) {
    return a < b + kCopyBytes && b < a + kCopyBytes;
  };
  const auto end_one = [&](QueueId queue) {
    if (queues[queue].empty()) return;
    Known& op = known[queues[queue].front()];
    // Only what follows nothing in flight can end.
    for (const size_t index : op.before)
      if (!known[index].ended) return;
    op.ended = true;
    queues[queue].erase(queues[queue].begin());
    End(queue);
  };
  int found = 0;
  for (int round = 0; round < 3000; ++round) {
    const QueueId queue = random() % 5;
    Known op{.id = kNone, .queue = queue, .src = random() % 30 * 60, .dst = random() % 30 * 60};
    How how;
    const auto follow = [&](size_t index) {
      op.before.insert(index);
      for (const size_t before : known[index].before)
        if (!known[before].ended) op.before.insert(before);
    };
    if (!queues[queue].empty()) follow(queues[queue].back());
    for (uint32_t i = random() % 3; i > 0; --i) {
      const auto& other = queues[random() % 5];
      if (other.empty()) continue;
      const size_t index = other[random() % other.size()];
      follow(index);
      how.waits.push_back(known[index].id);
    }
    op.id = Submit(queue, op.src, op.dst, how);
    std::set<OpId> racing;
    for (size_t i = 0; i < known.size(); ++i) {
      const Known& other = known[i];
      if (other.ended || other.queue == queue || op.before.contains(i)) continue;
      if (overlap(other.dst, op.src) || overlap(other.src, op.dst) || overlap(other.dst, op.dst))
        racing.insert(other.id);
    }
    const std::vector<Pair> pairs = Check();
    ASSERT_EQ(pairs.empty(), racing.empty()) << round;
    for (const auto& [earlier, later] : pairs) {
      EXPECT_TRUE(racing.contains(earlier));
      EXPECT_EQ(later, op.id);
      ++found;
    }
    queues[queue].push_back(known.size());
    known.push_back(op);
    for (QueueId i = 0; i < 5; ++i)
      if (random() % 2 == 0) end_one(i);
  }
  EXPECT_GT(found, 100);
  EXPECT_LT(found, 2900);
}

}  // namespace
}  // namespace concert::daemon
