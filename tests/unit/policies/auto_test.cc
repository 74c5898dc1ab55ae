// Group launches and deadlines of `auto`, and how much it plans at once. What it does with library
// kernels alone is in policies_test.cc.
#include "policies/auto/auto.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/group/plan/compiler.h"
#include "kernels/group/plan/cost.h"
#include "policies/auto/split/candidate.h"
#include "policies/auto/split/launch_splitter.h"
#include "policies/cost/cost_model.h"
#include "policies/seam/policy.h"
#include "tests/unit/policies/auto_fixture.h"

namespace concert::policies::auto_test {
namespace {

using kernels::GroupCompiler;
using kernels::GroupRepackUs;
using kernels::GroupWorkList;
using kernels::kGroupRepackBytes;

TEST_F(AutoTest, SmallGemmsOfAllSessionsGoInOneGroup) {
  for (uint32_t i = 0; i < 8; ++i) scene_.Of(i / 2, kSmall);
  Decide();
  ASSERT_EQ(plan_.launch_count, 1);
  const PlannedLaunch& launch = plan_.launches[0];
  EXPECT_EQ(launch.form, Form::kGroup);
  EXPECT_EQ(launch.count, 8);
  EXPECT_EQ(launch.lane, kFirstNormalLane);
  EXPECT_EQ(launch.sm_budget, 0);
  ASSERT_NE(launch.work_list, nullptr);
  EXPECT_EQ(GroupWorkList::Of(launch.work_list)->problem_count, 8);
  EXPECT_EQ(launch.predicted_us, launch.work_list->predicted_us);
  EXPECT_EQ(plan_.reason, Reason::kTogetherFaster);
  EXPECT_LT(plan_.predicted_us, 0.7 * plan_.serial_us);
}

TEST_F(AutoTest, TakesAllThatIsReady) {
  for (uint32_t i = 0; i < 100; ++i) scene_.Of(i, kTiny);
  Decide();
  EXPECT_EQ(plan_.op_count, 100);
  EXPECT_LE(plan_.launch_count, 2);
}

TEST_F(AutoTest, GroupsFollowEachOtherOnOneLaneWhateverRuns) {
  scene_.Running(kSmall, kFirstNormalLane).Running(kSmall, 3).Ready(kSmall).Ready(kSmall);
  for (const PlannedLaunch& launch : Decide().launch_span()) {
    EXPECT_EQ(launch.lane, kFirstNormalLane);
  }
}

// Two of these leave most SMs idle. That matters while nothing else can fill them: on an idle GPU,
// and behind a launch that they wait for.
TEST_F(AutoTest, GroupsArePlannedForWhatIsOnTheirLane) {
  const auto planned_us = [&](Lane after) {
    scene_.Ready(kSmall).Ready(kSmall);
    for (ReadyOp& op : scene_.ready) op.after = after;
    const float us = Decide().launches[0].predicted_us;
    Clear();
    return us;
  };
  const float alone_us = planned_us(kNoLane);
  scene_.Running(kSmall, kFirstNormalLane);
  const float behind_us = planned_us(kNoLane);
  scene_.Running(kSmall, kFirstNormalLane);
  const float chained_us = planned_us(kFirstNormalLane);
  const std::vector<Problem> problems(2, Problem::Of(kSmall));
  GroupCompiler compiler{DeviceModel()};
  EXPECT_EQ(alone_us, compiler.Compile(problems, 0, GroupGoal::kLatency)->predicted_us);
  EXPECT_EQ(behind_us, compiler.Compile(problems, 0, GroupGoal::kThroughput)->predicted_us);
  EXPECT_EQ(chained_us, compiler.Compile(problems, 0, GroupGoal::kChain)->predicted_us);
  EXPECT_LT(behind_us, chained_us);
  EXPECT_LT(chained_us, alone_us);
}

// One launch has a last wave where two have two.
TEST_F(AutoTest, LargeGemmsShareALaunch) {
  scene_.Ready(kLarge).Ready(kLarge);
  Decide();
  ASSERT_EQ(plan_.launch_count, 1);
  EXPECT_EQ(plan_.launches[0].form, Form::kGroup);
  EXPECT_EQ(plan_.launches[0].count, 2);
  EXPECT_LT(plan_.predicted_us, plan_.serial_us);
}

TEST_F(AutoTest, APlanEndsAtTheHorizon) {
  for (int i = 0; i < 8; ++i) scene_.Ready(kLarge);  // about 180 us each
  EXPECT_EQ(Decide().op_count, 2);
}

TEST_F(AutoTest, AGroupHasOneDtype) {
  Work half = kTiny;
  half.dtype = Dtype::kFp16;
  scene_.Ready(kTiny).Ready(half).Ready(kTiny).Ready(half);
  Decide();
  ASSERT_EQ(plan_.launch_count, 2);
  EXPECT_EQ(LaunchOf(0), LaunchOf(2));
  EXPECT_EQ(LaunchOf(1), LaunchOf(3));
  EXPECT_NE(LaunchOf(0), LaunchOf(1));
}

TEST_F(AutoTest, WhatNoGroupCanCarryGoesBesideIt) {
  scene_.Ready(kTiny).Ready(Gemm(16, 512, 512));
  for (int i = 0; i < 5; ++i) scene_.Ready(kTiny);
  Decide();
  EXPECT_EQ(plan_.op_count, 7);
  EXPECT_EQ(plan_.launches[LaunchOf(0)].count, 6);
  EXPECT_EQ(plan_.launches[LaunchOf(1)].form, Form::kSingle);
}

TEST_F(AutoTest, AGroupPaysForTheCopiesThatItMakes) {
  const Work unaligned = Unaligned(2048, 1024, 479);
  scene_.Ready(Groupable(2048, 512, 256)).Ready(Groupable(2048, 256, 512)).Ready(unaligned);
  Decide();
  ASSERT_EQ(plan_.launch_count, 1);
  const PlannedLaunch& launch = plan_.launches[0];
  ASSERT_NE(launch.work_list, nullptr);
  EXPECT_EQ(launch.count, 3);
  EXPECT_GT(GroupRepackUs(unaligned.repack_bytes), 4);
  EXPECT_FLOAT_EQ(launch.predicted_us,
                  launch.work_list->predicted_us + GroupRepackUs(unaligned.repack_bytes));
  EXPECT_EQ(GroupRepackUs(0), 0);
}

TEST_F(AutoTest, AGroupCopiesNoMoreThanThereIsRoomFor) {
  for (uint32_t i = 0; i < 10; ++i) {
    scene_.Of(i, Unaligned(24576, 256, 479));  // a fifth of the room
    scene_.Of(i, kTiny);
  }
  Decide();
  EXPECT_GT(plan_.launch_count, 1);
  for (const PlannedLaunch& launch : plan_.launch_span()) {
    uint64_t bytes = 0;
    for (const uint16_t op : plan_.OpsOf(launch)) bytes += scene_.ready[op].work.repack_bytes;
    EXPECT_EQ(launch.form, Form::kGroup);
    EXPECT_LE(bytes, kGroupRepackBytes);
  }
}

TEST_F(AutoTest, LargeUnalignedGemmsAreGroups) {
  scene_.Ready(Groupable(4096, 4096, 512));
  EXPECT_EQ(Decide().launches[0].form, Form::kSingle);
  Clear();
  scene_.Ready(Unaligned(4096, 4096, 479));
  EXPECT_EQ(Decide().launches[0].form, Form::kGroup);
}

TEST_F(AutoTest, ALoneGemmIsAGroupOfOneWhereThatIsNoSlower) {
  const GroupCompiler compiler(scene_.device);
  for (const Work& work : {kTiny, kDecode, kSmall, Groupable(2048, 2048, 2048), kLarge}) {
    Clear();
    scene_.Ready(work);
    const PlannedLaunch& launch = Decide().launches[0];
    const Problem problem = Problem::Of(work);
    const double library_us = SoloUs(scene_.device, work) + 1;  // and its signal
    const bool faster = compiler.PredictUs({&problem, 1}, 0) <= library_us;
    EXPECT_EQ(launch.form, faster ? Form::kGroup : Form::kSingle) << work.m;
    EXPECT_LE(launch.predicted_us, library_us * 1.001);
    EXPECT_EQ(plan_.reason, Reason::kOnlyOneReady);
  }
}

TEST_F(AutoTest, ShortGemmsOfOtherSessionsAreNotHeldBackByALongOne) {
  scene_.Of(1, kLarge);
  for (uint32_t i = 0; i < 7; ++i) scene_.Of(2 + i, kTiny);
  Decide();
  for (int i = 1; i < 8; ++i) {
    if (LaunchOf(i) < LaunchOf(0)) continue;
    // In one launch with it, which signals for each of them when it is done.
    ASSERT_EQ(LaunchOf(i), LaunchOf(0));
    const PlannedLaunch& launch = plan_.launches[LaunchOf(0)];
    const auto ops = plan_.OpsOf(launch);
    const auto place = std::find(ops.begin(), ops.end(), i) - ops.begin();
    ASSERT_NE(launch.work_list, nullptr);
    EXPECT_LT(launch.work_list->ends_us[place], 0.1f * launch.predicted_us);
  }
}

// However much else is ready, the op whose turn it is is not put off.
TEST_F(AutoTest, TheFirstInTurnIsAlwaysPlanned) {
  scene_.Of(1, kLarge);
  for (uint32_t i = 0; i < 60; ++i) scene_.Of(2 + i, kSmall);
  Decide();
  EXPECT_GE(LaunchOf(0), 0);
}

TEST_F(AutoTest, ADeadlineThatWouldBeMissedGoesFirst) {
  for (int i = 0; i < 16; ++i) scene_.Ready(kSmall);
  const float all_us = Decide().predicted_us;
  ASSERT_EQ(plan_.launch_count, 1);
  scene_.ready[15].deadline = scene_.now + static_cast<Time>(all_us * 1e3f * 2);
  EXPECT_EQ(Decide().launch_count, 1) << "met anyway";
  scene_.ready[15].deadline = scene_.now + static_cast<Time>(all_us * 1e3f * 0.3f);
  Decide();
  EXPECT_EQ(LaunchOf(15), 0);
  EXPECT_EQ(plan_.launches[0].count, 1);
  EXPECT_EQ(plan_.op_count, 16);
  scene_.ready[15].deadline = scene_.now + 1;
  EXPECT_EQ(Decide().launch_count, 1) << "late in any case";
}

// Each takes a plan of its own.
TEST_F(AutoTest, ADeadlineThatIsMetInALaterPlanHurriesNothing) {
  for (uint32_t i = 0; i < 20; ++i) scene_.Of(1 + i, kLarge);
  const double large_us = SoloUs(scene_.device, kLarge);
  scene_.ready[3].deadline = scene_.now + static_cast<Time>(8 * large_us * 1e3);
  Decide();
  EXPECT_EQ(LaunchOf(0), 0);
  EXPECT_EQ(LaunchOf(3), -1);
  scene_.ready[19].deadline = scene_.ready[3].deadline;
  Decide();
  EXPECT_EQ(LaunchOf(19), 0) << "whose turn comes too late";
  EXPECT_EQ(LaunchOf(3), -1);
}

TEST_F(AutoTest, OnlyDeadlinesThatCanBeMetTogetherGoFirst) {
  for (uint32_t i = 0; i < 5; ++i) scene_.Of(1 + i, kLarge);
  const double large_us = SoloUs(scene_.device, kLarge);
  for (int i = 1; i < 5; ++i)
    scene_.ready[i].deadline = scene_.now + static_cast<Time>(1.3 * large_us * 1e3);
  scene_.ready[3].deadline -= 1;
  Decide();
  EXPECT_EQ(LaunchOf(3), 0);
  EXPECT_EQ(plan_.launches[0].count, 1);
  EXPECT_EQ(LaunchOf(0), 1) << "the others are late in any case";
}

// One after the other not all of them would be in time.
TEST_F(AutoTest, DeadlinesThatShareALaunchAreMetTogether) {
  for (uint32_t i = 0; i < 40; ++i) scene_.Of(1 + i, kSmall);
  const float together_us = Decide().predicted_us;
  const float due_us = 0.4f * together_us;
  ASSERT_LT(due_us, 8 * SoloUs(scene_.device, kSmall));
  for (int i = 32; i < 40; ++i)
    scene_.ready[i].deadline = scene_.now + static_cast<Time>(due_us * 1e3f);
  Decide();
  EXPECT_EQ(plan_.launches[0].count, 8);
  EXPECT_EQ(LaunchOf(32), 0);
  EXPECT_LE(plan_.launches[0].predicted_us, due_us);
}

// Library kernels go side by side, a lane each: more there are not in a plan.
TEST_F(AutoTest, DeadlinesAreMetWhereThereAreNoGroups) {
  scene_.device.group_kernel = false;
  for (uint32_t i = 0; i < 40; ++i) scene_.Of(1 + i, kDecode);
  const double decode_us = SoloUs(scene_.device, kDecode);
  const auto due_in = [&](double solos) {
    return scene_.now + static_cast<Time>(solos * decode_us * 1e3);
  };
  Decide();
  ASSERT_EQ(LaunchOf(39), -1);
  scene_.ready[39].deadline = due_in(50);
  Decide();
  EXPECT_EQ(LaunchOf(39), -1) << "met anyway";
  scene_.ready[39].deadline = due_in(20);
  Decide();
  EXPECT_EQ(LaunchOf(39), 0);
  EXPECT_GE(LaunchOf(0), 0) << "whose turn it is";
  scene_.ready[39].deadline = due_in(0.5);
  Decide();
  EXPECT_EQ(LaunchOf(39), -1) << "late in any case";
  for (int i = 1; i < 40; ++i) scene_.ready[i].deadline = due_in(39);
  scene_.ready[20].deadline = due_in(10);
  Decide();
  EXPECT_EQ(LaunchOf(20), 0);
  EXPECT_GE(LaunchOf(0), 0) << "whose turn it is";
}

TEST_F(AutoTest, DeadlinesMakeNoPlanLong) {
  scene_.Of(1, kSmall);
  const double large_us = SoloUs(scene_.device, kLarge);
  for (uint32_t i = 0; i < 50; ++i) {
    scene_.Of(2 + i, kLarge);
    scene_.ready.back().deadline = scene_.now + static_cast<Time>(20 * large_us * 1e3);
  }
  Decide();
  EXPECT_GE(LaunchOf(0), 0);
  EXPECT_LT(plan_.predicted_us, kHorizonUs + large_us + kMaxGroupUs);
}

// A client keeps 16 GEMMs of some 8 us submitted; four of them run.
TEST_F(AutoTest, ALongLaunchIsNotPlannedBehindAShortOne) {
  const Work gemm = Groupable(16, 4096, 4096);
  for (int i = 0; i < 4; ++i) scene_.Running(gemm, kFirstNormalLane);
  for (int i = 0; i < 12; ++i) scene_.Ready(gemm);
  EXPECT_EQ(Decide().op_count, 8);
  // Now eight run; what is ready is as much.
  Clear();
  for (int i = 0; i < 8; ++i) scene_.Running(gemm, kFirstNormalLane);
  for (int i = 0; i < 8; ++i) scene_.Ready(gemm);
  EXPECT_EQ(Decide().op_count, 8);
}

TEST_F(AutoTest, LittleWorkIsNotSharedOutNorWhatNothingRunsBeside) {
  for (int i = 0; i < 12; ++i) scene_.Ready(Groupable(16, 4096, 4096));
  EXPECT_EQ(Decide().op_count, 12);
  Clear();
  scene_.Running(kTiny, kFirstNormalLane);
  for (int i = 0; i < 32; ++i) scene_.Ready(kTiny);
  EXPECT_EQ(Decide().op_count, 32);
}

}  // namespace
}  // namespace concert::policies::auto_test
