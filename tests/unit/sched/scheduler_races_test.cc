// What the scheduler tells Races of the order that queues and waits make.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/unit/sched/scheduler_fixture.h"

namespace concert::daemon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Pair = std::pair<OpId, OpId>;  // earlier, later

class SchedulerRacesTest : public SchedulerTest {
 protected:
  SchedulerRacesTest()
      : SchedulerTest({.max_ops = 256,
                       .max_queues = 64,
                       .depth = 2,
                       .backlog_ns = 0,
                       .wait_timeout_ns = 1'000'000'000,
                       .find_races = true}) {}

  // A copy of 100 bytes.
  OpId Copy(QueueId queue, uint64_t src, uint64_t dst, std::vector<OpSlot::LocalWait> waits = {},
            uint8_t watched_waits = 0, Failure failure = {}) {
    const OpId id = scheduler_.AllocateOp();
    OpSlot& slot = scheduler_.slot(id);
    slot.op.session = session_of_[queue];
    slot.op.ticket = ++tickets_[queue];
    slot.op.kind = CONCERT_OP_COPY;
    slot.op.work.runs_on = RunsOn::kCopyEngine;
    slot.op.copy = {.src = src, .dst = dst, .bytes = 100};
    for (const OpSlot::LocalWait& wait : waits) slot.local_waits.push_back(wait);
    slot.watched_waits = watched_waits;
    slot.failure = failure;
    scheduler_.Submit(id, queue, now_);
    return id;
  }

  // Checks what is new, then steps.
  std::vector<Pair> CheckAndStep() {
    std::vector<Pair> pairs;
    Races::Race race;
    const auto ended = [](const OpSlot&) { return false; };
    while (scheduler_.races()->Next(ended, race)) pairs.emplace_back(race.earlier, race.later);
    Step();
    return pairs;
  }
};

TEST_F(SchedulerTest, LooksForNoRacesUnlessAsked) { EXPECT_EQ(scheduler_.races(), nullptr); }

TEST_F(SchedulerRacesTest, WithoutAWaitTwoQueuesRace) {
  const QueueId a = AddQueue(), b = AddQueue();
  const OpId writer = Copy(a, 0, 1000), reader = Copy(b, 1000, 2000);
  EXPECT_THAT(CheckAndStep(), ElementsAre(Pair{writer, reader}));
  const OpId later = Copy(b, 1000, 3000);
  EXPECT_THAT(CheckAndStep(), ElementsAre(Pair{writer, later}));
}

TEST_F(SchedulerRacesTest, AWaitForATicketOrdersAllUpToIt) {
  const QueueId a = AddQueue(), b = AddQueue(), c = AddQueue();
  Copy(a, 0, 1000);
  Copy(a, 0, 2000);
  const OpId third = Copy(a, 0, 3000);
  Copy(b, 1000, 4000, {{a, 2}});
  Copy(b, 2000, 5000);
  EXPECT_THAT(CheckAndStep(), IsEmpty());
  const OpId reader = Copy(b, 3000, 6000, {{a, 2}});
  EXPECT_THAT(CheckAndStep(), ElementsAre(Pair{third, reader}));
  Copy(c, 1000, 7000, {{b, 1}});  // behind a's by way of b's
  EXPECT_THAT(CheckAndStep(), IsEmpty());
}

TEST_F(SchedulerRacesTest, WhatHasEndedRacesWithNothing) {
  const QueueId a = AddQueue(), b = AddQueue();
  Copy(a, 0, 1000);
  EXPECT_THAT(CheckAndStep(), IsEmpty());
  Finish(a, 1);
  Copy(b, 1000, 2000);
  EXPECT_THAT(CheckAndStep(), IsEmpty());
  // A wait for what has ended says nothing about what has not.
  const OpId writer = Copy(a, 0, 3000);
  const OpId reader = Copy(b, 3000, 4000, {{a, 1}});
  EXPECT_THAT(CheckAndStep(), ElementsAre(Pair{writer, reader}));
}

TEST_F(SchedulerRacesTest, WhereAWaitLeadsIsNotAlwaysKnown) {
  const QueueId a = AddQueue(), b = AddQueue(), c = AddQueue();
  Copy(a, 0, 1000);
  Copy(b, 1000, 2000, {}, /*watched_waits=*/1);  // a user timeline, say
  Copy(c, 1000, 3000, {{a, 2}});                 // not there yet
  EXPECT_THAT(CheckAndStep(), IsEmpty());
  EXPECT_EQ(launched_.size(), 1u);
}

TEST_F(SchedulerRacesTest, AWordThatIsReachedBeforeTheCheckDoesNotCount) {
  const QueueId a = AddQueue(), b = AddQueue();
  Copy(a, 0, 1000);
  EXPECT_THAT(CheckAndStep(), IsEmpty());
  const OpId reader = Copy(b, 1000, 2000, {}, /*watched_waits=*/1);
  scheduler_.WaitSatisfied(reader, 0);  // by a client that has seen the writer's end, say
  EXPECT_THAT(CheckAndStep(), IsEmpty());
}

TEST_F(SchedulerRacesTest, AFailedOpKeepsItsPlaceInTheOrder) {
  const QueueId a = AddQueue(), b = AddQueue();
  Copy(a, 0, 1000);
  Copy(a, 0, 1000, {}, 0, kernels::InvalidArgument(CONCERT_MESSAGE_NO_BUFFER));
  Copy(b, 1000, 2000, {{a, 2}});
  EXPECT_THAT(CheckAndStep(), IsEmpty());
  EXPECT_THAT(completed_, IsEmpty());
  Finish(a, 1);
  EXPECT_THAT(CheckAndStep(), IsEmpty());
  EXPECT_EQ(completed_.size(), 1u);
  Copy(b, 0, 1000);
  EXPECT_THAT(CheckAndStep(), IsEmpty());
}

TEST_F(SchedulerRacesTest, WhatARefusedOpWaitedForIsNotKnown) {
  const QueueId a = AddQueue(), b = AddQueue(), c = AddQueue();
  Copy(a, 0, 1000);
  Copy(b, 0, 0, {}, 0, kernels::InvalidArgument(CONCERT_MESSAGE_NO_BUFFER));
  Copy(c, 1000, 2000, {{b, 1}});
  EXPECT_THAT(CheckAndStep(), IsEmpty());
}

TEST_F(SchedulerRacesTest, AnOpThatFailsForItsRaceCompletesInItsTurn) {
  const QueueId a = AddQueue(), b = AddQueue();
  const OpId writer = Copy(a, 0, 1000), reader = Copy(b, 1000, 2000);
  Races::Race race;
  ASSERT_TRUE(scheduler_.races()->Next([](const OpSlot&) { return false; }, race));
  scheduler_.Fail(race.later, {CONCERT_ABI_FAILED_PRECONDITION, CONCERT_MESSAGE_RACE, {}});
  EXPECT_THAT(CheckAndStep(), IsEmpty());
  EXPECT_THAT(launched_, ElementsAre(writer));
  EXPECT_THAT(completed_, ElementsAre(reader));
  // It touches nothing, so that nothing races with it.
  const OpId other = Copy(a, 2000, 3000);
  EXPECT_THAT(CheckAndStep(), IsEmpty());
  EXPECT_THAT(launched_, ElementsAre(writer, other));
}

TEST_F(SchedulerRacesTest, AQueuesSlotIsUsedAgain) {
  const QueueId a = AddQueue(1), b = AddQueue(1);
  Copy(a, 0, 1000);
  EXPECT_THAT(CheckAndStep(), IsEmpty());
  scheduler_.RemoveQueue(a, false);
  Finish(a, 1);
  EXPECT_THAT(CheckAndStep(), IsEmpty());
  ASSERT_THAT(scheduler_.ended_queues(), ElementsAre(a));
  scheduler_.ReclaimQueue(a);
  scheduler_.ended_queues().clear();
  tickets_[a] = 0;
  ASSERT_EQ(AddQueue(1), a);
  const OpId writer = Copy(a, 0, 1000), reader = Copy(b, 1000, 2000);
  EXPECT_THAT(CheckAndStep(), ElementsAre(Pair{writer, reader}));
}

TEST_F(SchedulerRacesTest, ManyOpsComeAndGo) {
  std::vector<QueueId> queues;
  for (int i = 0; i < 8; ++i) queues.push_back(AddQueue(static_cast<uint32_t>(i % 3)));
  for (int round = 0; round < 1000; ++round) {
    for (size_t i = 0; i < queues.size(); ++i) Copy(queues[i], 0, 1000 + i * 100);
    EXPECT_THAT(CheckAndStep(), IsEmpty());
    while (!scheduler_.idle()) {
      for (const QueueId queue : queues) Finish(queue, tickets_[queue]);
      Step();
    }
  }
}

}  // namespace
}  // namespace concert::daemon
