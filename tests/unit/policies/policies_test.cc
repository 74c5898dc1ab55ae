// What each policy is for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "policies/baselines/conccl.h"
#include "policies/cost/cost_model.h"
#include "policies/seam/policy.h"
#include "tests/unit/policies/works.h"

namespace concert::policies {
namespace {

Plan Decide(std::string_view policy, const Scene& scene) {
  Plan plan;
  FindPolicy(policy)->make(InputsOf(scene.device))->Decide(scene.Get(), plan);
  return plan;
}

std::set<int> LanesOf(const Plan& plan) {
  std::set<int> lanes;
  for (const PlannedLaunch& launch : plan.launch_span()) lanes.insert(launch.lane);
  return lanes;
}

const Work kSmall = Gemm(64, 1536, 4096);
const Work kLarge = Gemm(4096, 4096, 4096);

// Of a GPU where large GEMMs side by side evict each other's tiles.
Scene Crowded() {
  Scene scene;
  scene.device.costs.wave_crowding = 0.05;
  return scene;
}

TEST(RegistryTest, AutoIsTheDefaultAndNamesAreFound) {
  EXPECT_EQ(AllPolicies().front().name, "auto");
  for (const PolicyInfo& info : AllPolicies()) EXPECT_EQ(FindPolicy(info.name), &info);
  EXPECT_EQ(FindPolicy("no_such_policy"), nullptr);
}

TEST(SerialTest, UsesOneLaneWithoutBubbles) {
  const Plan plan = Decide("serial", Scene().Running(kSmall, 0).Ready(kSmall).Ready(kLarge));
  EXPECT_EQ(plan.launch_count, 2);
  EXPECT_THAT(LanesOf(plan), testing::ElementsAre(0));
  EXPECT_FLOAT_EQ(plan.predicted_us, plan.serial_us);
}

TEST(SerialTest, NeverOverlapsACollective) {
  const Work collective = AllReduce(1 << 20);
  EXPECT_EQ(Decide("serial", Scene().Running(kSmall, 0).Ready(collective)).reason,
            Reason::kHeldBack);
  EXPECT_TRUE(Decide("serial", Scene().Running(collective, kCollectiveLane).Ready(kSmall)).empty());
  const Plan mixed = Decide("serial", Scene().Ready(collective).Ready(kSmall));
  EXPECT_EQ(mixed.launch_count, 1);
  EXPECT_EQ(mixed.launches[0].lane, kCollectiveLane);
}

TEST(GroupedTest, PutsWhatOneLaunchCanCarryIntoOne) {
  Work other_dtype = Groupable(64, 1536, 4096);
  other_dtype.dtype = Dtype::kFp16;
  Scene scene;
  scene.device.group_kernel = true;
  scene.Ready(Groupable(4096, 4096, 4096))
      .Ready(kSmall)
      .Ready(Copy(1 << 20))
      .Ready(other_dtype)
      .Ready(AllReduce(1 << 20))
      .Ready(Groupable(64, 1536, 4096), Priority::kLow)
      .Ready(Groupable(64, 1536, 4096));
  const Plan plan = Decide("group", scene);
  ASSERT_EQ(plan.launch_count, 1);
  const PlannedLaunch& launch = plan.launches[0];
  EXPECT_EQ(launch.form, Form::kGroup);
  EXPECT_NE(launch.work_list, nullptr);
  EXPECT_EQ(launch.lane, kGroupLanes[0]);
  ASSERT_EQ(launch.count, 2);
  EXPECT_EQ(plan.ops[0], 0);
  EXPECT_EQ(plan.ops[1], 6);
  EXPECT_GT(plan.predicted_us, 0);
  EXPECT_GT(plan.serial_us, plan.predicted_us / 2);
}

TEST(GroupedTest, WhatNoLaunchCanCarryGoesAlone) {
  Scene scene;
  scene.device.group_kernel = true;
  scene.Ready(kSmall).Ready(Groupable(64, 1536, 4096));
  const Plan alone = Decide("group", scene);
  ASSERT_EQ(alone.launch_count, 1);
  EXPECT_EQ(alone.op_count, 1);
  EXPECT_EQ(alone.launches[0].form, Form::kSingle);
  EXPECT_EQ(alone.launches[0].lane, kGroupLanes[0]);
  // Without the kernel nothing is grouped.
  const Plan without =
      Decide("group", Scene().Ready(Groupable(64, 1536, 4096)).Ready(Groupable(64, 1536, 4096)));
  EXPECT_EQ(without.op_count, 1);
  EXPECT_EQ(without.launches[0].form, Form::kSingle);
}

TEST(StreamsTest, SpreadsOverLanesAndFollowsPredecessors) {
  Scene scene;
  scene.Running(kSmall, 5).Ready(kSmall, Priority::kNormal, 5);
  for (int i = 0; i < 7; ++i) scene.Ready(kSmall);
  const Plan plan = Decide("streams", scene);
  EXPECT_EQ(plan.launches[0].lane, 5);
  EXPECT_EQ(LanesOf(plan).size(), 8u);
}

TEST(StreamsTest, StaysTogetherEvenWhereItLoses) {
  const Plan plan =
      Decide("streams", Crowded().Ready(kLarge).Ready(kLarge).Ready(kLarge).Ready(kLarge));
  EXPECT_EQ(plan.launch_count, 4);
  EXPECT_GT(plan.predicted_us, plan.serial_us);
}

TEST(PriorityTest, HighClassGoesFirstOnHighLanes) {
  const Plan plan = Decide(
      "priority", Scene().Ready(kSmall, Priority::kHigh).Ready(kSmall).Ready(AllReduce(1 << 20)));
  ASSERT_EQ(plan.launch_count, 3);
  EXPECT_TRUE(IsHighPriority(plan.launches[0].lane));
  EXPECT_EQ(plan.launches[1].lane, kHighCollectiveLane);
  EXPECT_FALSE(IsHighPriority(plan.launches[2].lane));
}

TEST(ConcclTest, WhatWantsFewSmsGoesFirst) {
  const Plan plan =
      Decide("conccl", Scene().Ready(kLarge).Ready(Gemm(16, 256, 4096)).Ready(AllReduce(1 << 20)));
  ASSERT_EQ(plan.launch_count, 3);
  EXPECT_EQ(plan.launches[0].lane, kHighCollectiveLane);
  EXPECT_EQ(plan.ops[1], 1);
  EXPECT_EQ(plan.ops[2], 0);
  EXPECT_EQ(LanesOf(plan).size(), 3u);
}

TEST(ConcclTest, GemmsLeaveACollectiveItsSms) {
  const int sm_count = DeviceModel().sm_count;
  const Plan offered = Decide("conccl", Scene().Ready(kLarge).Ready(AllReduce(1 << 20), 12));
  EXPECT_EQ(offered.launches[1].sm_budget, sm_count - 12);
  Scene running;
  running.reserved_sms = 16;
  running.Running(AllReduce(1 << 20), kHighCollectiveLane).Ready(kLarge);
  EXPECT_EQ(Decide("conccl", running).launches[0].sm_budget, sm_count - 16);
  EXPECT_EQ(Decide("conccl", Scene().Ready(kLarge)).launches[0].sm_budget, 0);
}

TEST(ConcclTest, BesideCopiesOnlyMemoryBoundGemmsAreTrimmed) {
  const Work memory_bound = Gemm(16, 16384, 8192);
  Scene scene;
  scene.Running(AllReduce(1 << 20), kHighCollectiveLane).Ready(kLarge).Ready(memory_bound);
  const Plan plan = Decide("conccl", scene);
  ASSERT_EQ(plan.launch_count, 2);
  for (const PlannedLaunch& launch : plan.launch_span()) {
    const bool trimmed = plan.OpsOf(launch)[0] == 1;
    EXPECT_EQ(launch.sm_budget, trimmed ? DeviceModel().sm_count - kTrimmedSms : 0);
  }
}

TEST(AutoWithLibraryKernelsTest, RunsSmallGemmsTogether) {
  Scene scene;
  for (int i = 0; i < 8; ++i) scene.Ready(kSmall);
  const Plan plan = Decide("auto", scene);
  EXPECT_EQ(plan.reason, Reason::kTogetherFaster);
  EXPECT_EQ(plan.launch_count, 8);
  EXPECT_EQ(LanesOf(plan).size(), 8u);
  EXPECT_LT(plan.predicted_us, plan.serial_us);
}

// Without a join between sets even 4096x4096x4096 are 3 to 5 % faster together (H200).
TEST(AutoWithLibraryKernelsTest, RunsLargeGemmsTogether) {
  const Plan plan = Decide("auto", Scene().Ready(kLarge).Ready(kLarge));
  EXPECT_EQ(plan.reason, Reason::kTogetherFaster);
  EXPECT_EQ(plan.launch_count, 2);
  EXPECT_EQ(LanesOf(plan).size(), 2u);
}

TEST(AutoWithLibraryKernelsTest, RunsAloneWhatIsSlowerTogether) {
  const Plan plan = Decide("auto", Crowded().Ready(kLarge).Ready(kLarge));
  EXPECT_EQ(plan.reason, Reason::kTogetherNotFaster);
  EXPECT_EQ(LanesOf(plan).size(), 1u);  // one after the other
  for (const PlannedLaunch& launch : plan.launch_span()) EXPECT_EQ(launch.form, Form::kSingle);
}

TEST(AutoWithLibraryKernelsTest, QueuesALargeGemmBehindARunningOne) {
  const Plan plan = Decide("auto", Crowded().Running(kLarge, 3).Ready(kLarge));
  ASSERT_EQ(plan.launch_count, 1);
  EXPECT_EQ(plan.launches[0].lane, 3);
}

TEST(AutoWithLibraryKernelsTest, RunsASmallGemmBesideARunningSmallOne) {
  const Plan plan = Decide("auto", Scene().Running(kSmall, 3).Ready(kSmall));
  ASSERT_EQ(plan.launch_count, 1);
  EXPECT_NE(plan.launches[0].lane, 3);
}

TEST(AutoWithLibraryKernelsTest, ChainsStayOnTheirLanes) {
  Scene scene;
  for (Lane lane = 0; lane < 8; ++lane) {
    scene.Running(kSmall, lane).Ready(kSmall, Priority::kNormal, lane);
  }
  const Plan plan = Decide("auto", scene);
  ASSERT_GT(plan.launch_count, 1);
  for (const PlannedLaunch& launch : plan.launch_span()) {
    EXPECT_EQ(launch.lane, scene.ready[plan.OpsOf(launch)[0]].after);
  }
}

TEST(AutoWithLibraryKernelsTest, SendsCollectivesAtOnceAndFirst) {
  const Plan plan =
      Decide("auto", Scene().Running(kLarge, 0).Ready(kLarge).Ready(AllReduce(1 << 20)));
  ASSERT_EQ(plan.launch_count, 2);
  EXPECT_EQ(plan.launches[0].lane, kHighCollectiveLane);
  EXPECT_EQ(Decide("auto", Scene().Ready(AllReduce(1 << 20))).reason, Reason::kCollective);
}

TEST(AutoWithLibraryKernelsTest, ALowerClassWaitsForAHigherOne) {
  const Plan together =
      Decide("auto", Scene().Ready(kSmall, Priority::kHigh).Ready(kSmall, Priority::kNormal));
  ASSERT_EQ(together.launch_count, 1);
  EXPECT_EQ(together.OpsOf(together.launches[0])[0], 0);
  EXPECT_EQ(together.reason, Reason::kPriorityFirst);

  const Plan held = Decide("auto", Scene().Running(kLarge, 8, Priority::kHigh).Ready(kLarge));
  EXPECT_TRUE(held.empty());
  EXPECT_EQ(held.reason, Reason::kHeldBack);
}

TEST(AutoWithLibraryKernelsTest, ALowerClassMayUseWhatAHigherOneLeaves) {
  const Work tiny = Gemm(16, 16, 512);
  const Plan plan = Decide("auto", Scene().Running(tiny, 8, Priority::kHigh).Ready(tiny));
  ASSERT_EQ(plan.launch_count, 1);
  EXPECT_FALSE(IsHighPriority(plan.launches[0].lane));
}

TEST(AutoWithLibraryKernelsTest, AHigherClassDoesNotQueueBehindALowerOne) {
  const Plan plan = Decide("auto", Scene().Running(kLarge, 0).Ready(kLarge, Priority::kHigh));
  ASSERT_EQ(plan.launch_count, 1);
  EXPECT_TRUE(IsHighPriority(plan.launches[0].lane));
}

}  // namespace
}  // namespace concert::policies
