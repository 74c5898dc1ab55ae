// How much of the rings a dispatcher admits before it launches, and what one client can make it do.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/bench/dispatcher_bed.h"
#include "tests/bench/null_device.h"

namespace concert::daemon {
namespace {

// Counts launches; ops end when the test says so.
class HeldDevice : public bench::NullDevice {
 public:
  absl::Status Launch(const LaunchRequest& launch) override {
    ++launches_;
    writes_.insert(writes_.end(), launch.writes.begin(), launch.writes.end());
    return absl::OkStatus();
  }
  void EndAll() {
    if (writes_.empty()) return;
    EXPECT_TRUE(Signal(0, writes_).ok());
    writes_.clear();
  }
  int launches() const { return launches_; }

 private:
  int launches_ = 0;
  std::vector<TimelineWrite> writes_;
};

class AdmissionTest : public testing::Test {
 protected:
  static constexpr uint32_t kChain = 16;
  void SubmitChain(uint32_t queue) {
    for (uint32_t i = 0; i < kChain; ++i) bed_.Submit(shape_, queue, /*set=*/0);
  }
  void Turn() { bed_.Turn(now_ += 1000); }

  const std::vector<bench::GemmShape> shape_ = {{.m = 16, .n = 2048, .k = 2048}};
  HeldDevice gpu_;
  bench::DispatcherBed bed_{gpu_, "auto", {.scheduler = {.max_ops = 512}}, /*queues=*/4};
  policies::Time now_ = 0;
};

TEST_F(AdmissionTest, AnIdleGpuGetsTheFirstOpOfAChainBeforeTheRestIsAdmitted) {
  SubmitChain(0);
  Turn();
  EXPECT_GT(gpu_.launches(), 0);
  EXPECT_LT(bed_.unfinished(), kChain);
  Turn();
  EXPECT_EQ(bed_.unfinished(), kChain);
  while (!bed_.idle()) {
    gpu_.EndAll();
    Turn();
  }
  EXPECT_EQ(bed_.timeline(0), kChain);
}

// Which way a collective goes depends on how long GEMMs run beside it. That this one is refused is
// not known when the chain is read.
TEST_F(AdmissionTest, BehindACollectiveAWholeChainIsAdmitted) {
  concert_descriptor all_reduce = bed_.Gemm(shape_[0], /*queue=*/1);
  all_reduce.kind = CONCERT_OP_ALL_REDUCE;
  all_reduce.body.collective = {};
  bed_.Write(/*session=*/0, all_reduce);
  SubmitChain(0);
  Turn();
  EXPECT_GT(gpu_.launches(), 0);
  EXPECT_EQ(bed_.unfinished(), kChain);
}

TEST_F(AdmissionTest, WhatIsReadyTogetherIsAdmittedTogether) {
  bed_.Submit(std::vector<bench::GemmShape>(4, shape_[0]), /*first_queue=*/0, /*set=*/0);
  Turn();
  EXPECT_EQ(gpu_.launches(), 1);
  EXPECT_EQ(bed_.unfinished(), 4u);
}

TEST_F(AdmissionTest, ABusyGpuLeavesTimeForAWholeChain) {
  SubmitChain(0);
  Turn();
  SubmitChain(1);
  Turn();
  EXPECT_EQ(bed_.unfinished(), 2 * kChain);
}

// Knows which failures clients could see when it was last given something.
class WitnessDevice : public bench::NullDevice {
 public:
  absl::Status Launch(const LaunchRequest& launch) override {
    failures = bed->TakeFailures(0).size();
    return NullDevice::Launch(launch);
  }
  bench::DispatcherBed* bed = nullptr;
  size_t failures = 0;
};

// Both in one step. Who sees the second end may ask what became of the first.
TEST(DispatcherTest, AFailureIsThereBeforeTheNextOfItsQueueCanEnd) {
  const bench::GemmShape shape = {.m = 16, .n = 2048, .k = 2048};
  WitnessDevice gpu;
  bench::DispatcherBed bed(gpu, "auto", {.scheduler = {.max_ops = 512}}, /*queues=*/1);
  gpu.bed = &bed;
  concert_descriptor refused = bed.Gemm(shape, 0);
  refused.body.gemm.m = 0;
  bed.Write(0, refused);
  bed.Write(0, bed.Gemm(shape, 0));
  bed.Ring(0);
  bed.Turn(1000);
  EXPECT_EQ(bed.timeline(0), 2u);
  EXPECT_EQ(gpu.failures, 1u);
}

// A session beside those of another user who does what it can to be in the way.
class AttackTest : public testing::Test {
 protected:
  static constexpr uint32_t kHealthy = 0, kHealthyUser = 1, kAttacker = 2;
  static Limits SmallLimits() {
    Limits limits;
    limits[Resource::kWaits].per_user = 300;
    return limits;
  }
  concert_descriptor Good(uint32_t queue = 0) { return bed_.Gemm(shape_, queue); }
  concert_descriptor Refused(uint32_t queue = 0) {
    concert_descriptor op = Good(queue);
    op.body.gemm.m = 0;
    return op;
  }
  concert_descriptor Waiting(uint32_t queue, uint64_t timeline, uint64_t value = 1) {
    concert_descriptor op = Good(queue);
    op.wait_count = 1;
    op.waits[0] = {timeline, value};
    return op;
  }
  void Turn() {
    bed_.Turn(now_ += 2'000);
    gpu_.EndAll();
  }
  // Turns until the healthy session's next op has ended.
  int TurnsOfAHealthyOp() {
    bed_.Write(kHealthy, Good());
    bed_.Ring(kHealthy);
    int turns = 0;
    for (; bed_.timeline(0) < bed_.ticket(0) && turns < 10'000; ++turns) Turn();
    return turns;
  }

  const bench::GemmShape shape_ = {.m = 16, .n = 2048, .k = 2048};
  HeldDevice gpu_;
  bench::DispatcherBed bed_{
      gpu_, "auto", {.scheduler = {.max_ops = 1 << 16}}, /*queues=*/4, SmallLimits()};
  policies::Time now_ = 1'000'000'000;
};

TEST_F(AttackTest, AFloodOfRefusedOpsCostsOthersTurnsOfABoundedSize) {
  std::vector<uint32_t> attackers;
  for (int i = 0; i < 40; ++i) attackers.push_back(bed_.OpenSession(kAttacker, 1));
  const int alone = TurnsOfAHealthyOp();
  for (int round = 0; round < 20; ++round) {
    for (const uint32_t attacker : attackers) {
      bed_.TakeFailures(attacker);
      for (int i = 0; i < 64; ++i) bed_.Write(attacker, Refused());
      bed_.Ring(attacker);
    }
    EXPECT_LE(TurnsOfAHealthyOp(), alone + 1);
  }
}

TEST_F(AttackTest, ATurnAdmitsABoundedNumberOfOpsWhoeverSentThem) {
  for (int i = 0; i < 40; ++i) {
    const uint32_t attacker = bed_.OpenSession(kAttacker, 1);
    for (int j = 0; j < 64; ++j) bed_.Write(attacker, Refused());
    bed_.Ring(attacker);
  }
  uint32_t most = 0, before = bed_.unfinished();
  for (int i = 0; i < 200; ++i) {
    Turn();
    most = std::max(most, bed_.unfinished() - std::min(bed_.unfinished(), before));
    before = bed_.unfinished();
  }
  EXPECT_LE(most, 128u);
  EXPECT_TRUE(bed_.idle());
}

TEST_F(AttackTest, AFloodOfRefusedOpsDoesNotHoldUpADrain) {
  const uint32_t attacker = bed_.OpenSession(kAttacker, 1);
  bed_.Write(kHealthy, Waiting(0, CONCERT_TIMELINE_ID(bed_.IdOf(kHealthy), CONCERT_TIMELINE_USER)));
  bed_.Ring(kHealthy);
  Turn();
  bed_.Write(kHealthy, Good());  // published before the drain, and read after
  bed_.Ring(kHealthy);
  bed_.Tell(DispatcherMessage(DispatcherMessage::Type::kDrain));
  uint64_t written = 0;
  const auto turn_beside_the_flood = [&] {
    bed_.TakeFailures(attacker);
    const uint64_t read = bed_.memory(attacker).ring_state(0).head;
    for (; written < read + 100; ++written) bed_.Write(attacker, Good());
    bed_.Ring(attacker);
    Turn();
  };
  for (int i = 0; i < 20; ++i) turn_beside_the_flood();
  EXPECT_FALSE(bed_.dispatcher().gauges().drained);
  bed_.user_timeline(kHealthy, 0) = 1;
  for (int i = 0; i < 5; ++i) turn_beside_the_flood();
  EXPECT_TRUE(bed_.dispatcher().gauges().drained);
  EXPECT_EQ(bed_.timeline(0), 2u);
}

TEST(IssuersBoxTest, AllThatUsersMayOfferFits) {
  EXPECT_LT(InfoOf(Resource::kParts).limit.in_all, kRoomForParts);
}

TEST_F(AttackTest, AUserWithManySessionsHasNoMoreTurnsThanOneWithOne) {
  for (int i = 0; i < 100; ++i) {
    const uint32_t attacker = bed_.OpenSession(kAttacker, 1);
    for (int j = 0; j < 200; ++j) bed_.Write(attacker, Refused());
    bed_.Ring(attacker);
  }
  for (int j = 0; j < 200; ++j) bed_.Write(kHealthy, Good(j % 4));
  bed_.Ring(kHealthy);
  int turns = 0;
  for (; bed_.memory(kHealthy).ring_state(0).head < 200 && turns < 10'000; ++turns) Turn();
  EXPECT_LE(turns, 2 * 200 / 64 + 4);
}

TEST_F(AttackTest, WordsThatNeverMoveCostABoundedNumberOfReads) {
  const uint32_t attacker = bed_.OpenSession(kAttacker, 200);
  for (uint32_t queue = 0; queue < 200; ++queue) {
    const uint64_t timeline =
        CONCERT_TIMELINE_ID(bed_.IdOf(attacker), CONCERT_TIMELINE_USER | queue % 64);
    bed_.Write(attacker, Waiting(queue, timeline));
  }
  bed_.Ring(attacker);
  for (int i = 0; i < 10; ++i) Turn();
  EXPECT_EQ(bed_.dispatcher().watches().word_count(), 64u);  // however many ops wait for each
  const uint64_t reads = bed_.dispatcher().watches().reads();
  const uint64_t examined = bed_.dispatcher().scheduler().examined();
  for (int i = 0; i < 100; ++i) Turn();
  EXPECT_LE(bed_.dispatcher().watches().reads() - reads, 100 * (Watches::kHotPerTurn + 2));
  EXPECT_EQ(bed_.dispatcher().scheduler().examined(), examined);
}

TEST_F(AttackTest, ADispatcherWhoseOpsWaitInVainSleepsEverLonger) {
  const uint32_t attacker = bed_.OpenSession(kAttacker, 1);
  bed_.Write(attacker, Waiting(0, CONCERT_TIMELINE_ID(bed_.IdOf(attacker), CONCERT_TIMELINE_USER)));
  bed_.Ring(attacker);
  for (int i = 0; i < 10; ++i) Turn();
  const Dispatcher& dispatcher = bed_.dispatcher();
  const policies::Time since = now_;
  EXPECT_EQ(dispatcher.SleepTime(since + 200'000, since), 50'000);
  EXPECT_EQ(dispatcher.SleepTime(since + 32'000'000, since), 500'000);
  EXPECT_EQ(dispatcher.SleepTime(since + 640'000'000, since), 1'000'000);
  // The word moves after all.
  bed_.user_timeline(attacker, 0) = 1;
  for (int i = 0; i < 4; ++i) Turn();
  EXPECT_TRUE(bed_.idle());
  EXPECT_EQ(dispatcher.SleepTime(since + 640'000'000, since), 500'000'000);
}

TEST_F(AttackTest, WaitsBeyondTheUsersQuotaFailWithASentence) {
  const uint32_t attacker = bed_.OpenSession(kAttacker, 200),
                 other = bed_.OpenSession(kAttacker, 200);
  for (const uint32_t session : {attacker, other}) {
    for (uint32_t queue = 0; queue < 200; ++queue) {
      bed_.Write(session,
                 Waiting(queue, CONCERT_TIMELINE_ID(bed_.IdOf(attacker), CONCERT_TIMELINE_USER)));
    }
    bed_.Ring(session);
  }
  for (int i = 0; i < 20; ++i) Turn();
  std::vector<concert_completion> failures = bed_.TakeFailures(attacker);
  const std::vector<concert_completion> more = bed_.TakeFailures(other);
  failures.insert(failures.end(), more.begin(), more.end());
  EXPECT_EQ(failures.size(), 100u);
  ASSERT_FALSE(failures.empty());
  EXPECT_EQ(failures[0].status, CONCERT_ABI_RESOURCE_EXHAUSTED);
  EXPECT_EQ(failures[0].message, CONCERT_MESSAGE_TOO_MANY_WAITS);
  EXPECT_EQ(bed_.account(kAttacker).own().of(Resource::kWaits), 300u);
  // Others have a quota of their own, and what ends gives back what it held.
  bed_.Write(kHealthy, Waiting(1, CONCERT_TIMELINE_ID(bed_.IdOf(kHealthy), CONCERT_TIMELINE_USER)));
  bed_.Ring(kHealthy);
  bed_.user_timeline(attacker, 0) = 1;
  for (int i = 0; i < 200; ++i) Turn();
  EXPECT_EQ(bed_.unfinished(), 1u);
  EXPECT_LE(bed_.account(kAttacker).own().of(Resource::kWaits), 4 * BlockCharge::kBlock);
}

TEST_F(AttackTest, AnotherUsersTimelineAnswersAsOneThatDoesNotExist) {
  const uint32_t attacker = bed_.OpenSession(kAttacker, 1);
  const uint32_t foreign = bed_.IdOf(kHealthy), nobody = 999'999;
  for (const uint32_t session : {foreign, nobody}) {
    bed_.Write(attacker, Waiting(0, CONCERT_TIMELINE_ID(session, 0)));
    bed_.Write(attacker, Waiting(0, CONCERT_TIMELINE_ID(session, CONCERT_TIMELINE_USER | 3u)));
  }
  bed_.Ring(attacker);
  for (int i = 0; i < 10; ++i) Turn();
  const std::vector<concert_completion> failures = bed_.TakeFailures(attacker);
  ASSERT_EQ(failures.size(), 4u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(failures[i].status, failures[i + 2].status);
    EXPECT_EQ(failures[i].message, failures[i + 2].message);
    EXPECT_EQ(failures[i].args[2], failures[i + 2].args[2]);
    EXPECT_EQ(failures[i].message, CONCERT_MESSAGE_NO_TIMELINE);
  }
}

// The op is published and its queue removed before the dispatcher's turn.
TEST_F(AttackTest, AWaitForAQueueThatEndsInTheSameTurnIsOneForItsWord) {
  const uint32_t other = bed_.OpenSession(kHealthyUser, 1);
  bed_.Write(kHealthy, Good(/*queue=*/1));
  bed_.Ring(kHealthy);
  for (int i = 0; i < 10; ++i) Turn();
  ASSERT_EQ(bed_.timeline(1), 1u);
  bed_.Write(other, Waiting(0, CONCERT_TIMELINE_ID(bed_.IdOf(kHealthy), 1), 1));
  bed_.Ring(other);
  DispatcherMessage remove(DispatcherMessage::Type::kRemoveQueue, bed_.IdOf(kHealthy));
  remove.queue = {.queue = 1};
  bed_.Tell(remove);
  for (int i = 0; i < 10; ++i) Turn();
  EXPECT_TRUE(bed_.idle());
  EXPECT_EQ(bed_.memory(other).timeline(0), 1u);
  EXPECT_TRUE(bed_.TakeFailures(other).empty());
  EXPECT_EQ(bed_.dispatcher().scheduler().queue_count(), 4u);
}

TEST_F(AttackTest, ManyOpsOfAQueueThatEndInATurnWakeItsThreadsOnce) {
  const uint32_t attacker = bed_.OpenSession(kAttacker, 1);
  bed_.waiters(attacker, 0) = 1;
  for (int i = 0; i < 128; ++i) bed_.Write(attacker, Refused());
  bed_.Ring(attacker);
  const uint64_t before = bed_.dispatcher().gauges().wakes;
  int turns = 0;
  while (bed_.memory(attacker).timeline(0) < 128) {
    Turn();
    ++turns;
  }
  EXPECT_LE(bed_.dispatcher().gauges().wakes - before, static_cast<uint64_t>(turns));
}

TEST_F(AttackTest, ARemovedSessionEndsWhateverWaitsForIt) {
  const uint32_t other = bed_.OpenSession(kHealthyUser, 100);
  for (uint32_t queue = 0; queue < 4; ++queue) {
    bed_.Write(kHealthy, Waiting(queue, CONCERT_TIMELINE_ID(bed_.IdOf(other),
                                                            CONCERT_TIMELINE_USER | queue)));
  }
  for (uint32_t queue = 0; queue < 100; ++queue) {
    bed_.Write(other, Waiting(queue, CONCERT_TIMELINE_ID(bed_.IdOf(kHealthy), 0), 50));
  }
  bed_.Ring(kHealthy);
  bed_.Ring(other);
  for (int i = 0; i < 10; ++i) Turn();
  EXPECT_EQ(bed_.unfinished(), 104u);
  bed_.user_timeline(other, 1) = 1;  // met, if only in the last moment
  bed_.CloseSession(other);
  for (int i = 0; i < 20; ++i) Turn();
  EXPECT_TRUE(bed_.idle());
  EXPECT_EQ(bed_.TakeFailures(kHealthy).size(), 3u);
  EXPECT_EQ(bed_.dispatcher().gauges().sessions, 1u);
  EXPECT_TRUE(bed_.dispatcher().watches().empty());
  EXPECT_EQ(bed_.dispatcher().scheduler().queue_count(), 4u);
}

// More sessions than are looked at all the time.
TEST_F(AttackTest, AColdRingIsSeenWithinABoundedNumberOfTurns) {
  std::vector<uint32_t> sessions;
  for (int i = 0; i < 100; ++i) sessions.push_back(bed_.OpenSession(kAttacker, 1));
  for (int i = 0; i < 2'000; ++i) Turn();
  for (const uint32_t session : {sessions[0], sessions[57], sessions[99]}) {
    bed_.Write(session, Good());
    bed_.Ring(session);
    int turns = 0;
    for (; bed_.memory(session).timeline(0) == 0 && turns < 1'000; ++turns) Turn();
    EXPECT_LE(turns, 100 / static_cast<int>(Rings::kColdPerLook) + 3);
  }
}

}  // namespace
}  // namespace concert::daemon
