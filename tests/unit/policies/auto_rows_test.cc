// How `auto` plans ops whose rows are computed each for itself.
#include <gtest/gtest.h>

#include "tests/unit/policies/auto_fixture.h"

namespace concert::policies::auto_test {
namespace {

// A launch of rows needs no work list. Eight of 64 rows leave room for each other.
TEST_F(AutoTest, RowOpsOfAllSessionsShareALaunch) {
  for (uint32_t i = 0; i < 8; ++i) scene_.Of(i, Rows(64, 4096));
  Decide();
  ASSERT_EQ(plan_.launch_count, 1);
  EXPECT_EQ(plan_.launches[0].form, Form::kGroup);
  EXPECT_EQ(plan_.launches[0].count, 8);
  EXPECT_EQ(plan_.launches[0].lane, kFirstNormalLane);
  EXPECT_EQ(plan_.launches[0].work_list, nullptr);
  EXPECT_LT(plan_.predicted_us, 0.5 * plan_.serial_us);
}

TEST_F(AutoTest, ALaunchHoldsNoMoreRowOpsThanItsKernelTakes) {
  for (uint32_t i = 0; i < 40; ++i) scene_.Of(i, Rows(4, 256));
  Decide();
  EXPECT_EQ(plan_.op_count, 40);
  for (const PlannedLaunch& launch : plan_.launch_span()) EXPECT_LE(launch.count, 32);
}

// So that it can follow the GEMMs of its chain, and be followed.
TEST_F(AutoTest, ARowOpGoesToTheGroupsLane) {
  scene_.Running(kSmall, kFirstNormalLane).Ready(Rows(64, 4096)).Ready(kSmall);
  for (const PlannedLaunch& launch : Decide().launch_span()) {
    EXPECT_EQ(launch.lane, kFirstNormalLane);
  }
  Later(1'000'000).Ready(Rows(64, 4096));
  EXPECT_EQ(Decide().launches[0].lane, kFirstNormalLane);
}

}  // namespace
}  // namespace concert::policies::auto_test
