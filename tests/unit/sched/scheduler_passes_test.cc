// Runs that read the same weights: which of them go together, and when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <vector>

#include "kernels/program/pass.h"
#include "tests/unit/sched/scheduler_fixture.h"

namespace concert::daemon {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

constexpr uint64_t kBytes = 1'000'000, kSharedBytes = 800'000;

// Four clients with a program each, all in one pass.
class PassesTest : public SchedulerTest {
 protected:
  PassesTest() {
    pass_.member_count = kClients;
    pass_.shared_bytes = kSharedBytes;
    for (uint32_t i = 0; i < kClients; ++i) {
      programs_[i].pass = &pass_;
      pass_.members[i] = &programs_[i];
      queues_[i] = AddQueue(/*session=*/i + 1);
    }
  }

  OpId SubmitRun(uint32_t client) { return SubmitRun(queues_[client], client); }
  OpId SubmitRun(QueueId queue, uint32_t client) {
    const OpId id = scheduler_.AllocateOp();
    OpSlot& slot = scheduler_.slot(id);
    slot.op.kind = CONCERT_OP_PROGRAM;
    slot.op.session = session_of_[queue];
    slot.op.ticket = ++tickets_[queue];
    slot.op.buffers.push_back(1);
    slot.op.program = {.program = &programs_[client], .bindings = {}, .pass = nullptr, .member = 0};
    slot.op.work = {.m = 64, .n = 1, .steps = 100, .flops = 1000, .hbm_bytes = kBytes};
    scheduler_.Submit(id, queue, now_);
    return id;
  }
  // Until nothing more is launched.
  void StepAll() {
    size_t before = 0;
    do {
      before = launched_.size();
      Step();
    } while (launched_.size() != before);
  }
  void End(uint32_t client, uint64_t ticket) { Finish(queues_[client], ticket); }
  std::vector<OpId> TakeLaunched() { return std::exchange(launched_, {}); }
  const kernels::ProgramArgs& ArgsOf(OpId op) { return scheduler_.slot(op).op.program; }

  static constexpr uint32_t kClients = 4;
  kernels::Pass pass_;
  std::array<kernels::Program, kClients> programs_;
  std::array<QueueId, kClients> queues_;
};

TEST_F(PassesTest, WhatIsReadyTogetherIsOneLaunch) {
  const OpId a = SubmitRun(0), b = SubmitRun(2), c = SubmitRun(3);
  StepAll();
  EXPECT_THAT(launched_, UnorderedElementsAre(a, b, c));
  EXPECT_EQ(launch_of_.at(a).plan, launch_of_.at(c).plan);
  EXPECT_EQ(launch_of_.at(a).planned.count, 3);
  EXPECT_EQ(ArgsOf(a).pass, &pass_);
  EXPECT_EQ(ArgsOf(a).member, 0u);
  EXPECT_EQ(ArgsOf(b).member, 2u);
  EXPECT_EQ(ArgsOf(c).member, 3u);
  EXPECT_EQ(pass_.runs, 3u);
  End(0, 1), End(2, 1), End(3, 1);
  Step();
  EXPECT_EQ(pass_.runs, 0u);
  EXPECT_EQ(pass_.use.together, 0u);
}

TEST_F(PassesTest, OneThatIsReadyAloneGoesAtOnceAndAlone) {
  const OpId only = SubmitRun(1);
  StepAll();
  EXPECT_THAT(launched_, ElementsAre(only));
  EXPECT_EQ(ArgsOf(only).pass, nullptr);
}

TEST_F(PassesTest, WhatComesMeanwhileGoesTogetherBehindWhatRuns) {
  SubmitRun(0);
  StepAll();
  TakeLaunched();
  const OpId b = SubmitRun(1);
  StepAll();
  const OpId c = SubmitRun(2);
  StepAll();
  EXPECT_THAT(launched_, ElementsAre());
  End(0, 1);
  StepAll();
  EXPECT_THAT(launched_, UnorderedElementsAre(b, c));
  EXPECT_EQ(ArgsOf(b).pass, &pass_);
}

TEST_F(PassesTest, WhileTooFewAreAtWorkEachGoesByItself) {
  pass_.least_together = 3;
  const OpId a = SubmitRun(0), b = SubmitRun(2);
  StepAll();
  EXPECT_THAT(TakeLaunched(), UnorderedElementsAre(a, b));
  EXPECT_EQ(ArgsOf(a).pass, nullptr);
  EXPECT_EQ(ArgsOf(b).pass, nullptr);
  EXPECT_NE(launch_of_.at(a).plan, launch_of_.at(b).plan);
  End(0, 1);
  const OpId again = SubmitRun(0);  // beside one that runs
  StepAll();
  EXPECT_THAT(TakeLaunched(), ElementsAre(again));
}

TEST_F(PassesTest, WithEnoughAtWorkTheNextPassIsOfAllOfThem) {
  pass_.least_together = 3;
  SubmitRun(0), SubmitRun(2);
  StepAll();
  TakeLaunched();
  const OpId c = SubmitRun(3);
  StepAll();
  EXPECT_THAT(launched_, ElementsAre()) << "it waits for those that run";
  now_ += 160'000;
  End(0, 1);
  StepAll();
  EXPECT_THAT(launched_, ElementsAre()) << "who has ended is expected back";
  const OpId a = SubmitRun(0);
  End(2, 1);
  const OpId b = SubmitRun(2);
  StepAll();
  EXPECT_THAT(launched_, UnorderedElementsAre(a, b, c));
  EXPECT_EQ(ArgsOf(c).pass, &pass_);
}

// A decision looks at so many at most, however many are ready.
TEST_F(PassesTest, RunsWithoutEndOfAPassCostADecisionABoundedNumberOfLooks) {
  SubmitRun(0);
  StepAll();
  constexpr uint32_t kRuns = 4'000;
  for (uint32_t i = 0; i < kRuns; ++i) SubmitRun(AddQueue(/*session=*/2), 1);
  while (scheduler_.ready_count() < kRuns) Step();
  const uint64_t before = scheduler_.looked_at();
  Step();
  EXPECT_LE(scheduler_.looked_at() - before, 2u * policies::kMaxReady);
  TakeLaunched();
  End(0, 1);
  StepAll();
  EXPECT_THAT(TakeLaunched(), testing::SizeIs(1));
}

// Nobody is left for whom it could wait.
TEST_F(PassesTest, ThoseThatFollowAllOfAPassGoBehindItAtOnce) {
  const OpId a = SubmitRun(0), b = SubmitRun(1);
  StepAll();
  EXPECT_THAT(TakeLaunched(), UnorderedElementsAre(a, b));
  const OpId a2 = SubmitRun(0);
  StepAll();
  EXPECT_THAT(TakeLaunched(), ElementsAre());  // b's next may come
  const OpId b2 = SubmitRun(1), c = SubmitRun(2);
  StepAll();
  EXPECT_THAT(TakeLaunched(), UnorderedElementsAre(a2, b2, c));
  // One pass waits at most, so that whoever comes is in the next but one.
  SubmitRun(0), SubmitRun(1), SubmitRun(2);
  StepAll();
  EXPECT_THAT(TakeLaunched(), ElementsAre());
  End(0, 1), End(1, 1);
  StepAll();
  EXPECT_THAT(TakeLaunched(), testing::SizeIs(3));
}

TEST_F(PassesTest, ALoneClientsRunsFollowOneAnother) {
  const OpId first = SubmitRun(0), second = SubmitRun(0), third = SubmitRun(0);
  StepAll();
  EXPECT_THAT(TakeLaunched(), ElementsAre(first, second));
  End(0, 1);
  StepAll();
  EXPECT_THAT(TakeLaunched(), ElementsAre(third));
  EXPECT_EQ(ArgsOf(third).pass, nullptr);
}

TEST_F(PassesTest, AHigherClassDoesNotWaitForALower) {
  SubmitRun(0), SubmitRun(1);
  StepAll();
  TakeLaunched();
  const QueueId high = AddQueue(/*session=*/4, Priority::kHigh);
  const OpId urgent = SubmitRun(high, 3);
  StepAll();
  EXPECT_THAT(TakeLaunched(), ElementsAre(urgent));
}

// Clients with one run at a time, the last of which ended together.
TEST_F(PassesTest, ThoseWhoseRunsEndedAreWaitedForAMoment) {
  const Time moment = 100'000 / 16;
  SubmitRun(0), SubmitRun(1);
  StepAll();
  TakeLaunched();
  const OpId late = SubmitRun(2);
  now_ += 100'000;
  End(0, 1), End(1, 1);
  StepAll();
  EXPECT_THAT(TakeLaunched(), ElementsAre());
  EXPECT_TRUE(scheduler_.pending());  // nothing rings when the moment is over
  const OpId back = SubmitRun(0);
  StepAll();
  EXPECT_THAT(TakeLaunched(), ElementsAre());
  now_ += moment;
  StepAll();
  EXPECT_THAT(TakeLaunched(), UnorderedElementsAre(late, back));
  EXPECT_FALSE(scheduler_.pending());
  // All are back before it is over.
  now_ += 100'000;
  End(0, 2), End(2, 1);
  const OpId a = SubmitRun(0), b = SubmitRun(1), c = SubmitRun(2);
  StepAll();
  EXPECT_THAT(TakeLaunched(), UnorderedElementsAre(a, b, c));
  // Who stays away is waited for once.
  now_ += 100'000;
  End(0, 3), End(1, 2), End(2, 2);
  SubmitRun(0);
  now_ += moment;
  StepAll();
  EXPECT_THAT(TakeLaunched(), testing::SizeIs(1));
  now_ += 100'000;
  End(0, 4);
  SubmitRun(0);
  StepAll();
  EXPECT_THAT(TakeLaunched(), testing::SizeIs(1));
}

// A dispatcher that has something pending does not sleep.
TEST_F(PassesTest, NothingIsPendingOnceWhatWasHeldBackIsCancelled) {
  SubmitRun(0);
  StepAll();
  SubmitRun(2);
  now_ += 100'000;
  End(0, 1);
  StepAll();
  EXPECT_TRUE(scheduler_.pending());
  scheduler_.RemoveQueue(queues_[2], /*cancel=*/true);
  StepAll();
  EXPECT_FALSE(scheduler_.pending());
}

// Its program's arena has room for one.
TEST_F(PassesTest, TwoRunsOfAProgramAreNotInOnePass) {
  const QueueId other = AddQueue(/*session=*/1);
  const OpId a = SubmitRun(0), again = SubmitRun(other, 0), b = SubmitRun(1);
  StepAll();
  EXPECT_THAT(TakeLaunched(), UnorderedElementsAre(a, b));
  End(0, 1), End(1, 1);
  StepAll();
  EXPECT_THAT(TakeLaunched(), ElementsAre(again));
}

TEST_F(PassesTest, AFaultEndsTheUseOfAPass) {
  SubmitRun(0), SubmitRun(1);
  StepAll();
  EXPECT_EQ(pass_.runs, 2u);
  scheduler_.FailAll({CONCERT_ABI_INTERNAL, CONCERT_MESSAGE_DRAINING, {}});
  EXPECT_EQ(pass_.runs, 0u);
  EXPECT_EQ(pass_.use.together, 0u);
}

// As policies see it.
TEST_F(PassesTest, ThePassIsOneOpThatReadsWeightsOnce) {
  class Look : public EachAlone {
   public:
    explicit Look(std::vector<policies::ReadyOp>& seen) : seen_(seen) {}
    void Decide(const Snapshot& snapshot, Plan& plan) override {
      seen_.assign(snapshot.ready.begin(), snapshot.ready.end());
      EachAlone::Decide(snapshot, plan);
    }

   private:
    std::vector<policies::ReadyOp>& seen_;
  };
  std::vector<policies::ReadyOp> seen;
  std::unique_ptr<policies::Policy> policy = std::make_unique<Look>(seen);
  scheduler_.SetPolicy(policy);
  SubmitRun(0), SubmitRun(1), SubmitRun(2);
  Step();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].work.hbm_bytes, 3 * kBytes - 2 * kSharedBytes);
  EXPECT_EQ(seen[0].work.steps, 100u);
}

}  // namespace
}  // namespace concert::daemon
