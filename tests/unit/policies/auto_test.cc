// Group launches, classes, deadlines and learning of `auto`. What it does with library kernels
// alone is in policies_test.cc.
#include "policies/auto/auto.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/group/plan/compiler.h"
#include "kernels/group/plan/cost.h"
#include "policies/auto/budget_choice.h"
#include "policies/auto/scope.h"
#include "policies/auto/sm_budgets.h"
#include "policies/cost/corrections.h"
#include "policies/cost/cost_model.h"
#include "policies/seam/policy.h"
#include "tests/unit/policies/auto_fixture.h"

namespace concert::policies::auto_test {
namespace {

using kernels::GroupCompiler;
using kernels::GroupRepackUs;
using kernels::GroupWorkList;
using kernels::kGroupRepackBytes;
using kernels::kWorkListSlots;

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

// --- Classes ---

TEST_F(AutoTest, AHighClassGoesFirstOnItsOwnLane) {
  scene_.Ready(kDecode, Priority::kHigh).Ready(kDecode, Priority::kHigh).Ready(kSmall);
  Decide();
  EXPECT_EQ(plan_.op_count, 2);
  for (const PlannedLaunch& launch : plan_.launch_span()) EXPECT_EQ(launch.lane, kFirstHighLane);
}

TEST_F(AutoTest, LowerClassesLeaveAReserveWhileAHigherOneIsActive) {
  const int beside = scene_.device.sm_count - ReserveOf(scene_.device.sm_count);
  EXPECT_EQ(beside, 68);
  scene_.Running(kDecode, kFirstHighLane, Priority::kHigh).Ready(kLarge);
  Decide();
  ASSERT_EQ(plan_.launch_count, 1);
  EXPECT_EQ(plan_.launches[0].form, Form::kGroup) << "library kernels keep to no budget";
  EXPECT_EQ(plan_.launches[0].sm_budget, beside);
  EXPECT_LE(GroupWorkList::Of(plan_.launches[0].work_list)->blocks, beside);
  EXPECT_LE(plan_.predicted_us, plan_.serial_us);

  Later(kActiveNs).Ready(kLarge);
  EXPECT_EQ(Decide().launches[0].sm_budget, beside) << "not long ago";
  Later(1).Ready(kLarge);
  EXPECT_EQ(Decide().launches[0].sm_budget, 0) << "long ago";
}

TEST_F(AutoTest, AHigherClassTakesTheReserveBesideALowerOne) {
  scene_.Running(kLarge, kFirstNormalLane).Ready(kDecode, Priority::kHigh);
  scene_.running[0].expected_end = scene_.now + 150'000;
  Decide();
  ASSERT_EQ(plan_.launch_count, 1);
  EXPECT_EQ(plan_.launches[0].form, Form::kGroup);
  EXPECT_EQ(plan_.launches[0].sm_budget, ReserveOf(scene_.device.sm_count));
}

TEST_F(AutoTest, AHigherClassWaitsForALowerOneWhereThatIsFaster) {
  scene_.Running(kSmall, kFirstNormalLane).Ready(kLarge, Priority::kHigh);
  Decide();
  ASSERT_EQ(plan_.launch_count, 1);
  EXPECT_EQ(plan_.launches[0].sm_budget, 0);
}

TEST_F(AutoTest, AHigherClassKeepsToTheReserveBesideALowerOneThatIsOverdue) {
  scene_.Running(kLarge, kFirstNormalLane).Ready(kDecode, Priority::kHigh);
  scene_.running[0].launched_at = scene_.now - 400'000;
  for (const Time until_end : {5'000, 0, -1'000, -100'000}) {
    scene_.running[0].expected_end = scene_.now + until_end;
    Decide();
    ASSERT_EQ(plan_.launch_count, 1);
    EXPECT_EQ(plan_.launches[0].sm_budget, ReserveOf(scene_.device.sm_count)) << until_end;
  }
}

TEST_F(AutoTest, NormalAndLowDoNotQueueBehindEachOther) {
  scene_.Ready(kSmall, Priority::kLow);
  const Lane low = Decide().launches[0].lane;
  Later(1).Ready(kSmall);
  EXPECT_NE(Decide().launches[0].lane, low);
  EXPECT_FALSE(IsHighPriority(low));
}

TEST_F(AutoTest, NoClassStarves) {
  scene_.Ready(kDecode, Priority::kHigh).Ready(kSmall);
  const Time ready_at = scene_.now;
  std::vector<Time> planned;
  for (int turn = 0; turn < 100; ++turn, scene_.now += 100'000) {
    scene_.ready[0].ready_at = scene_.now;  // the high class is always back at once
    if (Decide().launches[0].lane != kFirstNormalLane) continue;
    EXPECT_GT(plan_.launches[0].sm_budget, 0);
    planned.push_back(scene_.now - ready_at);
    scene_.ready[1].ready_at = scene_.now;  // and so is the lower one
  }
  ASSERT_EQ(planned.size(), 4u);
  for (size_t i = 0; i < planned.size(); ++i) {
    EXPECT_LE(planned[i], static_cast<Time>(i + 1) * (kMaxHeldNs + 100'000));
  }
}

TEST_F(AutoTest, LibraryKernelsWaitForAHigherClassButNotForEver) {
  scene_.Running(kLarge, kFirstHighLane, Priority::kHigh).Ready(Gemm(4096, 4096, 4096));
  EXPECT_TRUE(Decide().empty());
  EXPECT_EQ(plan_.reason, Reason::kHeldBack);
  scene_.now += kMaxHeldNs + 1;
  EXPECT_EQ(Decide().op_count, 1);
}

// --- How much at once ---

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

// --- What was measured ---

TEST_F(AutoTest, AGroupThatTakesTwiceAsLongIsGivenUp) {
  for (uint32_t i = 0; i < 16; ++i) scene_.Of(i, Groupable(1024, 1024, 1024));
  const float predicted_us = Decide().predicted_us;
  ASSERT_EQ(plan_.launches[0].form, Form::kGroup);
  ASSERT_GE(predicted_us, Corrections::kMinUs);
  bool gave_up = false;
  for (int i = 0; i < 200 && !gave_up; ++i) {
    // It takes twice of what was predicted at first.
    Learn(2 * predicted_us / plan_.predicted_us);
    Decide();
    gave_up = plan_.launches[0].form != Form::kGroup || plan_.launches[0].count != 16;
    ASSERT_LE(plan_.predicted_us, plan_.serial_us);
  }
  EXPECT_TRUE(gave_up);
  EXPECT_GT(policy_->stats().corrected, 0u);
}

TEST_F(AutoTest, WhatIsTunedLeavesWhatWasLearnedOfOtherWork) {
  for (uint32_t i = 0; i < 16; ++i) scene_.Of(i, Groupable(1024, 1024, 1024));
  const float predicted_us = Decide().predicted_us;
  for (int i = 0; i < 200; ++i) {
    Learn(1.5f * predicted_us / plan_.predicted_us);
    Decide();
  }
  const float learned_us = plan_.predicted_us;
  const PolicyStats before = policy_->stats();
  ASSERT_GT(before.corrected, 0u);
  ASSERT_GT(learned_us, 1.1f * predicted_us);
  const auto table = [](const Work& work, float us) {
    return std::make_shared<TunedTable>(
        std::vector<TunedRow>{{.key = {.problem = Problem::Of(work)}, .median_us = us}});
  };
  policy_->UseTuned(table(kSmall, 7));
  EXPECT_EQ(Decide().predicted_us, learned_us);
  EXPECT_EQ(policy_->stats().known, before.known + 1) << "nor was it chosen anew";
  EXPECT_EQ(policy_->stats().corrected, before.corrected);
  // Its own times are others now, so that what was learned about the old ones means nothing.
  policy_->UseTuned(table(scene_.ready[0].work, 20));
  Decide();
  EXPECT_EQ(policy_->stats().unseen, before.unseen + 1);
  EXPECT_LT(plan_.predicted_us, learned_us);
}

TEST_F(AutoTest, AChoiceIsMadeAnewByTimesThatWereTunedSince) {
  scene_.Ready(kSmall);
  const float modelled_us = Decide().serial_us;
  policy_->UseTuned(std::make_shared<TunedTable>(
      std::vector<TunedRow>{{.key = {.problem = Problem::Of(kSmall)}, .median_us = 500}}));
  EXPECT_NEAR(Decide().serial_us, 500, 10) << "and what a launch costs";
  policy_->UseTuned(nullptr);
  EXPECT_EQ(Decide().serial_us, modelled_us);
}

// What the model says is fastest takes half as long again; all else takes what was predicted.
TEST_F(AutoTest, AFormThatWasMeasuredToBeSlowerIsNotChosenAgain) {
  for (uint32_t i = 0; i < 4; ++i) scene_.Of(i, Groupable(2048, 2048, 2048));
  Decide();
  const Form slow = plan_.launches[0].form;
  const float first_us = plan_.predicted_us;
  ASSERT_EQ(plan_.op_count, 4);
  int slow_plans = 0, last_slow = 0;
  for (int i = 0; i < 600; ++i) {
    Decide();
    const bool is_slow = plan_.launches[0].form == slow;
    if (is_slow) ++slow_plans, last_slow = i;
    // What a form takes does not depend on what it is predicted to take by now.
    Learn((is_slow ? 1.5f : 1.05f) * first_us / plan_.predicted_us);
  }
  // As one group, as several, and as a group and launches of single ops.
  EXPECT_LE(slow_plans, 3 * Corrections::kTrialPlans);
  EXPECT_LT(last_slow, 50);
}

TEST_F(AutoTest, GroupsInTurnAreNotJudgedByHowOneGroupDid) {
  for (int i = 0; i < 4; ++i) scene_.Running(Groupable(1356, 1064, 3064), kFirstNormalLane);
  for (int i = 0; i < 4; ++i) scene_.Ready(Groupable(1356, 1064, 3064));
  for (int i = 0; i < 4; ++i) scene_.Ready(Groupable(258, 576, 576));
  const float first_us = Decide().predicted_us;
  ASSERT_EQ(plan_.launch_count, 1);
  ASSERT_EQ(plan_.launches[0].form, Form::kGroup);
  const auto groups_in_turn = [&] {
    const auto launches = plan_.launch_span();
    return launches.size() > 1 &&
           std::all_of(launches.begin(), launches.end(),
                       [](const PlannedLaunch& launch) { return launch.form == Form::kGroup; });
  };
  for (int i = 0; i < 100; ++i) {
    Learn((groups_in_turn() ? 1.05f : 1.5f) * first_us / plan_.predicted_us);
    Decide();
  }
  EXPECT_TRUE(groups_in_turn());
}

// Sixteen take some 100 us, four less than kMinUs: nothing would ever correct what they expect.
TEST_F(AutoTest, ShortPlansAreNotChosenByWhatLongOnesTaughtTheFamily) {
  const auto decide = [&](int count) {
    Clear();
    for (int i = 0; i < count; ++i) scene_.Ready(Groupable(1024, 1024, 1024));
    return Decide().predicted_us;
  };
  const float short_us = decide(4);
  ASSERT_EQ(plan_.launches[0].form, Form::kGroup);
  ASSERT_LT(short_us, Corrections::kMinUs);
  const float long_us = decide(16);
  for (int i = 0; i < 30; ++i) {
    Learn(1.5f * long_us / plan_.predicted_us);
    decide(16);
  }
  EXPECT_GT(policy_->stats().corrected, 0u);
  // Unseen, and of the same family.
  EXPECT_LT(decide(3), short_us);
  EXPECT_EQ(plan_.launches[0].form, Form::kGroup);
  EXPECT_EQ(plan_.launch_count, 1);
}

TEST_F(AutoTest, ShortPlansTeachNothing) {
  scene_.Ready(kTiny).Ready(kTiny);
  const float predicted_us = Decide().predicted_us;
  ASSERT_LT(predicted_us, Corrections::kMinUs);
  for (int i = 0; i < 200; ++i) {
    Learn(2);
    Decide();
    EXPECT_EQ(plan_.predicted_us, predicted_us);
  }
  EXPECT_EQ(policy_->stats().corrected, 0u);
}

TEST_F(AutoTest, MeasuredTimesReplaceTheModel) {
  const Problem problem = Problem::Of(kSmall);
  const auto row = [&](Form form, Degree degree, float us) {
    return TunedRow{.key = {.problem = problem, .degree = degree, .form = form}, .median_us = us};
  };
  tuned_ = std::make_shared<TunedTable>(std::vector<TunedRow>{
      row(Form::kSingle, Degree::kSolo, 5), row(Form::kGroup, Degree::kSolo, 50),
      row(Form::kGroup, Degree::kFour, 50), row(Form::kGroup, Degree::kTwo, 50),
      row(Form::kStreams, Degree::kFour, 50)});
  for (uint32_t i = 0; i < 4; ++i) scene_.Of(i, kSmall);
  Decide();
  EXPECT_EQ(plan_.launch_count, 4);
  EXPECT_EQ(plan_.launches[0].form, Form::kSingle);
  EXPECT_FLOAT_EQ(plan_.predicted_us, 4 * (5 + 1));
  EXPECT_EQ(policy_->stats().tuned, 4u);
  EXPECT_EQ(policy_->stats().modelled, 0u);
}

TEST_F(AutoTest, StreamsThatWereMeasuredFastestNameTheirDegree) {
  const auto row = [&](Form form, Degree degree, float us) {
    return TunedRow{.key = {.problem = Problem::Of(kSmall), .degree = degree, .form = form},
                    .median_us = us};
  };
  std::vector<TunedRow> rows = {row(Form::kStreams, Degree::kFour, 7),
                                row(Form::kSingle, Degree::kSolo, 60)};
  for (const Degree degree : {Degree::kSolo, Degree::kTwo, Degree::kFour}) {
    rows.push_back(row(Form::kGroup, degree, 50));
  }
  tuned_ = std::make_shared<TunedTable>(rows);
  for (uint32_t i = 0; i < 4; ++i) scene_.Of(i, kSmall);
  Decide();
  ASSERT_EQ(plan_.launch_count, 4);
  for (const PlannedLaunch& launch : plan_.launch_span()) {
    EXPECT_EQ(launch.form, Form::kStreams);
    EXPECT_EQ(launch.degree, Degree::kFour);
  }
}

// The others would only be one after the other if there were no more lanes to come.
TEST_F(AutoTest, StreamsTakeWhatThereAreLanesForOfMore) {
  std::vector<TunedRow> rows;
  const auto add = [&](Form form, Degree degree, float us) {
    rows.push_back(
        {.key = {.problem = Problem::Of(kSmall), .degree = degree, .form = form}, .median_us = us});
  };
  add(Form::kSingle, Degree::kSolo, 60);
  add(Form::kStreams, Degree::kEight, 7);
  for (const Degree degree :
       {Degree::kSolo, Degree::kTwo, Degree::kFour, Degree::kEight, Degree::kMany}) {
    add(Form::kGroup, degree, 50);
  }
  tuned_ = std::make_shared<TunedTable>(rows);
  for (uint32_t i = 0; i < 20; ++i) scene_.Ready(kSmall);
  Decide();
  ASSERT_EQ(plan_.launch_count, kNormalLaneCount);
  EXPECT_EQ(plan_.op_count, kNormalLaneCount);
  uint32_t lanes = 0;
  for (const PlannedLaunch& launch : plan_.launch_span()) {
    EXPECT_EQ(launch.form, Form::kStreams);
    EXPECT_EQ(launch.degree, Degree::kEight);
    lanes |= 1u << launch.lane;
  }
  EXPECT_EQ(lanes, (1u << kNormalLaneCount) - 1);
}

TEST_F(AutoTest, CountsWhatItKnew) {
  scene_.Ready(kSmall).Ready(kSmall);
  Decide();
  Decide();
  EXPECT_EQ(policy_->stats().unseen, 1u);
  EXPECT_EQ(policy_->stats().known, 1u);
  EXPECT_EQ(policy_->stats().modelled, 4u);
}

// Work lists are their compiler's: a remembered plan asks for its own again once they are gone.
TEST_F(AutoTest, RememberedWorkListsAreThoseOfThePlan) {
  for (int round = 0; round < 3; ++round) {
    for (uint32_t i = 0; i < kWorkListSlots; ++i) {
      Later(10 * kActiveNs).Ready(Groupable(16, 128 + 8 * (i % 300), 512)).Ready(kTiny);
      Decide();
      for (const PlannedLaunch& launch : plan_.launch_span()) {
        if (launch.form != Form::kGroup) continue;
        ASSERT_EQ(GroupWorkList::Of(launch.work_list)->problem_count, launch.count);
        ASSERT_NE(GroupWorkList::Of(launch.work_list)->id, 0u);
      }
    }
  }
}

}  // namespace
}  // namespace concert::policies::auto_test
