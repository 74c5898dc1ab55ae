// What `auto` leaves to classes of priority, and that none starves.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/group/plan/compiler.h"
#include "policies/auto/auto.h"
#include "policies/auto/budget_choice.h"
#include "policies/auto/scope.h"
#include "policies/auto/sm_budgets.h"
#include "policies/seam/policy.h"
#include "tests/unit/policies/auto_fixture.h"

namespace concert::policies::auto_test {
namespace {

using kernels::GroupWorkList;

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

}  // namespace
}  // namespace concert::policies::auto_test
