// What late binding makes of programs: they take the lanes that are idle.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "policies/seam/lane_book.h"
#include "tests/unit/sched/scheduler_fixture.h"

namespace concert::daemon {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::SizeIs;

constexpr float kLongUs = 1'000;

// Launches all that is offered, each op on the lane with the least to do.
class AllThatIsOffered : public policies::Policy {
 public:
  void Decide(const Snapshot& snapshot, Plan& plan) override {
    plan.Clear();
    policies::LaneBook lanes(snapshot);
    for (uint16_t i = 0; i < snapshot.ready.size() && !plan.full(); ++i) {
      const policies::ReadyOp& op = snapshot.ready[i];
      const Lane lane = lanes.Take(op, op.priority == Priority::kHigh, kLongUs);
      plan.AddSingle(i, Form::kSingle, lane, kLongUs);
    }
    plan.predicted_us = plan.serial_us = kLongUs;
  }
};

// Programs and GEMMs that are predicted to run for much longer than late binding looks ahead, each
// the only op of a session.
class ProgramsTest : public SchedulerTest {
 protected:
  ProgramsTest() : SchedulerTest({.depth = 1, .backlog_ns = 10'000}) {
    std::unique_ptr<policies::Policy> policy = std::make_unique<AllThatIsOffered>();
    scheduler_.SetPolicy(policy);
  }

  OpId SubmitProgram(Priority priority = Priority::kNormal) { return SubmitOf(100, priority); }
  OpId SubmitGemm() { return SubmitOf(1, Priority::kNormal); }
  OpId SubmitCopy() { return SubmitOf(1, Priority::kNormal, RunsOn::kCopyEngine); }
  // `submit` so often, all of which the scheduler has examined.
  template <typename Submit>
  void Fill(int ops, Submit submit) {
    for (int i = 0; i < ops; ++i) submit();
    while (scheduler_.ready_count() < static_cast<uint32_t>(ops)) Step();
  }
  void End(OpId op) { Finish(queue_of_.at(op), 1); }

  std::set<Lane> LanesTaken() const {
    std::set<Lane> lanes;
    for (const OpId op : launched_) lanes.insert(lane_.at(op));
    return lanes;
  }

  // One is in flight and more than the class has lanes come: each idle lane is given one of them.
  void ExpectOneOnEachLane(Priority priority, int lane_count) {
    const auto lanes = static_cast<size_t>(lane_count);
    std::vector<OpId> programs = {SubmitProgram(priority)};
    Step();
    ASSERT_THAT(launched_, SizeIs(1));
    while (programs.size() < lanes + 2) programs.push_back(SubmitProgram(priority));
    Step();
    EXPECT_THAT(launched_, ElementsAreArray(programs.begin(), programs.begin() + lane_count));
    EXPECT_THAT(LanesTaken(), SizeIs(lanes)) << "none is behind another";
    End(programs[2]);
    Step();
    EXPECT_THAT(launched_, ElementsAreArray(programs.begin(), programs.begin() + lane_count + 1));
    EXPECT_EQ(lane_[programs[lanes]], lane_[programs[2]]) << "the one that became idle";
  }

 private:
  OpId SubmitOf(uint32_t steps, Priority priority, RunsOn runs_on = RunsOn::kSms) {
    const QueueId queue = AddQueue(++sessions_, priority);
    steps_ = steps;
    const OpId op = Submit(queue, {}, runs_on);
    queue_of_[op] = queue;
    return op;
  }

  uint32_t sessions_ = 0;
  std::map<OpId, QueueId> queue_of_;
};

TEST_F(ProgramsTest, AProgramIsLaunchedAtOnceBesideALongOneOfAnotherSession) {
  const OpId running = SubmitProgram();
  Step();
  const OpId second = SubmitProgram();
  Step();
  ASSERT_THAT(launched_, ElementsAre(running, second));
  EXPECT_NE(lane_[second], lane_[running]);
}

TEST_F(ProgramsTest, NoMoreAreLaunchedThanTheClassHasIdleLanes) {
  ExpectOneOnEachLane(Priority::kNormal, policies::kNormalLaneCount);
}

TEST_F(ProgramsTest, TheHighClassHasLanesOfItsOwn) {
  for (int i = 0; i < policies::kNormalLaneCount; ++i) {
    SubmitProgram();
    Step();
  }
  ASSERT_THAT(LanesTaken(), SizeIs(policies::kNormalLaneCount));
  launched_.clear();
  ExpectOneOnEachLane(Priority::kHigh, policies::kHighLaneCount);
}

TEST_F(ProgramsTest, AGemmIsHeldBackAndProgramsPassIt) {
  const OpId running = SubmitProgram();
  Step();
  const OpId gemm = SubmitGemm();
  Step();
  EXPECT_THAT(launched_, ElementsAre(running));
  const OpId second = SubmitProgram();
  Step();
  EXPECT_THAT(launched_, ElementsAre(running, second));
  End(running);
  End(second);
  Step();
  EXPECT_THAT(launched_, ElementsAre(running, second, gemm));
}

TEST_F(ProgramsTest, AProgramIsLaunchedBesideALongGemm) {
  const OpId running = SubmitGemm();
  Step();
  const OpId program = SubmitProgram();
  Step();
  EXPECT_THAT(launched_, ElementsAre(running, program));
}

TEST_F(ProgramsTest, WhatIsHeldBackIsNotLookedAt) {
  const OpId running = SubmitGemm();
  Step();
  Fill(2'000, [&] { SubmitGemm(); });
  const uint64_t before = scheduler_.looked_at();
  const OpId program = SubmitProgram();
  Step();
  EXPECT_THAT(launched_, ElementsAre(running, program));
  EXPECT_LE(scheduler_.looked_at() - before, 4u);
}

TEST_F(ProgramsTest, CopiesWithoutEndDoNotHoldUpWhoAsksForGemmsBeside) {
  SubmitGemm();
  Step();
  Fill(2'000, [&] { SubmitCopy(); });
  const uint64_t before = scheduler_.looked_at();
  scheduler_.GemmsBeside(now_);
  EXPECT_LE(scheduler_.looked_at() - before, 256u);
}

}  // namespace
}  // namespace concert::daemon
