// What `auto` makes of the window: of what follows ready ops, of collectives that wait for ranks
// and of the resources in use.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/group/plan/compiler.h"
#include "policies/auto/auto.h"
#include "policies/auto/held_by_collectives.h"
#include "policies/cost/cost_model.h"
#include "tests/unit/policies/auto_fixture.h"

namespace concert::policies::auto_test {
namespace {

using kernels::GroupCompiler;
using kernels::GroupWorkList;

// The first step of a chain is followed by the next, of which it sees the queue.
TEST_F(AutoTest, WhatIsFollowedInItsQueueIsPlannedAsAStepOfAChain) {
  const auto planned_us = [&] {
    const float us = Decide().launches[0].predicted_us;
    Clear();
    return us;
  };
  const std::vector<Problem> problems(2, Problem::Of(kSmall));
  GroupCompiler compiler{DeviceModel()};
  const float latency_us = compiler.Compile(problems, 0, GroupGoal::kLatency)->predicted_us;
  const float throughput_us = compiler.Compile(problems, 0, GroupGoal::kThroughput)->predicted_us;
  const float chain_us = compiler.Compile(problems, 0, GroupGoal::kChain)->predicted_us;
  ASSERT_NE(latency_us, chain_us);
  scene_.Ready(kSmall).Then(kTiny).Ready(kSmall);
  EXPECT_EQ(planned_us(), chain_us);
  scene_.Ready(kSmall).Then(Rows(64, 1536)).Ready(kSmall);
  EXPECT_EQ(planned_us(), chain_us);
  scene_.Ready(kSmall).Then(kTiny, /*waits_elsewhere=*/true).Ready(kSmall);
  EXPECT_EQ(planned_us(), latency_us) << "it starts when something else has ended";
  for (const Work& apart : {Gemm(16, 512, 512), AllReduce(1 << 20), Copy(1 << 20)}) {
    scene_.Ready(kSmall).Then(apart).Then(kTiny).Ready(kSmall);
    EXPECT_EQ(planned_us(), latency_us) << "it starts when all before it have ended";
  }
  scene_.Running(kSmall, kFirstNormalLane).Ready(kSmall).Then(kTiny).Ready(kSmall);
  EXPECT_EQ(planned_us(), throughput_us) << "it overlaps a launch that it does not wait for";
}

// Pairs of blocks take part in no chain.
TEST_F(AutoTest, ALongFirstStepIsPlannedAsIfAlone) {
  const std::vector<Problem> problems(2, Problem::Of(kLarge));
  GroupCompiler compiler{DeviceModel()};
  const auto kind_of = [](const WorkList* list) { return GroupWorkList::Of(list)->kind; };
  const auto alone = kind_of(compiler.Compile(problems, 0, GroupGoal::kLatency));
  ASSERT_NE(alone, kind_of(compiler.Compile(problems, 0, GroupGoal::kChain)));
  scene_.Ready(kLarge).Then(kTiny).Ready(kLarge);
  const WorkList* planned = Decide().launches[0].work_list;
  ASSERT_NE(planned, nullptr);
  EXPECT_EQ(kind_of(planned), alone);
}

// Where alone a library kernel is predicted faster, by less than the next step gains.
TEST_F(AutoTest, AFirstStepIsNoLibraryKernelThatIsHardlyFaster) {
  int differ = 0;
  for (uint32_t m = 64; m <= 1024; m *= 2) {
    for (uint32_t n = 512; n <= 4096; n += 512) {
      const Work work = Groupable(m, n, 1024);
      Clear();
      scene_.Ready(work);
      const Form alone = Decide().launches[0].form;
      const float alone_us = plan_.predicted_us;
      Clear();
      scene_.Ready(work).Then(work);
      const Form followed = Decide().launches[0].form;
      if (alone == followed) continue;
      ++differ;
      EXPECT_EQ(followed, Form::kGroup) << m << " " << n;
      EXPECT_LE(plan_.predicted_us, alone_us + 2);
    }
  }
  EXPECT_GT(differ, 0);
}

// Else it would wait for them, and the other GPUs with it.
TEST_F(AutoTest, LaunchesLeaveRoomForACollectiveWhoseRanksAreComing) {
  const int beside = scene_.device.sm_count - 16;
  const auto budget = [&](uint16_t sms, uint8_t ranks_there, Time since) {
    Clear();
    scene_.Ready(kLarge).Waiting(AllReduce(1 << 20, 8), sms, ranks_there, scene_.now - since);
    return Decide().launches[0].sm_budget;
  };
  EXPECT_EQ(budget(16, 7, 0), beside);
  EXPECT_EQ(budget(16, 7, kLastRankNs - 1), beside);
  EXPECT_EQ(budget(16, 7, kLastRankNs), 0) << "SMs are not left unused for ever";
  EXPECT_EQ(budget(16, 1, kNextRankNs - 1), beside);
  EXPECT_EQ(budget(16, 6, kNextRankNs), 0);
  EXPECT_EQ(budget(4, 7, 0), scene_.device.sm_count - 4) << "as many as it takes";
  EXPECT_EQ(budget(0, 7, 0), 0) << "copy engines carry it";
}

TEST_F(AutoTest, LaunchesLeaveRoomForACollectiveThatGoesOutWithThem) {
  for (const uint16_t sms : {0, 8, 12}) {
    Clear();
    scene_.Ready(AllReduce(1 << 20), sms).Ready(kLarge);
    Decide();
    EXPECT_EQ(plan_.launches[LaunchOf(1)].sm_budget, sms == 0 ? 0 : scene_.device.sm_count - sms);
  }
}

TEST_F(AutoTest, OfCollectivesThatRunAndComeTheOneThatWantsMostCounts) {
  scene_.reserved_sms = 8;
  scene_.Ready(kLarge).Waiting(AllReduce(1 << 20, 8), 12, 7, scene_.now);
  EXPECT_EQ(Decide().launches[0].sm_budget, scene_.device.sm_count - 12);
}

// 12 of 132 SMs are an all-reduce's for about half or for twice as long as kLarge takes.
TEST_F(AutoTest, ALaunchThatOutlastsACollectiveHasItsSmsToo) {
  scene_.Ready(kLarge);
  const float alone_us = Decide().predicted_us;
  const auto beside = [&](float left_us) -> const PlannedLaunch& {
    Clear();
    scene_.reserved_sms = 12;
    scene_.Ready(kLarge).Running(AllReduce(1 << 28), kHighCollectiveLane);
    scene_.running.back().reserved_sms = 12;
    scene_.running.back().expected_end = scene_.now + static_cast<Time>(left_us * 1e3f);
    return Decide().launches[0];
  };
  EXPECT_EQ(beside(2 * alone_us).sm_budget, scene_.device.sm_count - 12);
  const float without_us = plan_.predicted_us;
  EXPECT_EQ(beside(alone_us / 2).sm_budget, 0);
  EXPECT_LE(plan_.predicted_us, without_us);
  EXPECT_GE(plan_.predicted_us, alone_us);
  EXPECT_EQ(beside(1).predicted_us, alone_us) << "it is as good as over";
}

// A collective holds SMs as GEMMs do.
TEST_F(AutoTest, LibraryKernelsOfALowerClassLeaveRoomForWhateverRuns) {
  const Work little = Gemm(16, 512, 512), most = Groupable(1024, 1792, 4096);
  const DeviceModel device;
  ASSERT_LE(CostOf(device, little).sm_share + CostOf(device, most).sm_share, 1);
  ASSERT_GT(CostOf(device, little).sm_share + CostOf(device, most).sm_share +
                CostOf(device, AllReduce(1 << 20)).sm_share,
            1);
  scene_.Running(most, kFirstHighLane, Priority::kHigh).Ready(little);
  EXPECT_EQ(Decide().op_count, 1);
  scene_.Running(AllReduce(1 << 20), kHighCollectiveLane);
  EXPECT_TRUE(Decide().empty());
  // Behind what runs on the lane it is not in use yet.
  scene_.running.pop_back();
  scene_.Running(kLarge, kFirstHighLane, Priority::kHigh);
  scene_.running.back().expected_end += 200'000;
  EXPECT_EQ(Decide().op_count, 1);
}

}  // namespace
}  // namespace concert::policies::auto_test
