// How `auto` plans programs: ops of many steps.
#include <gtest/gtest.h>

#include <set>

#include "policies/auto/scope.h"
#include "tests/unit/policies/auto_fixture.h"

namespace concert::policies::auto_test {
namespace {

// A decode step of a model with some GB of weights: it leaves no memory bandwidth to others.
const Work kStep = ProgramOf(200, 3'000'000'000);
constexpr Lane kNormalEnd = kFirstNormalLane + kNormalLaneCount;

// All that are ready go out at once, each on a lane that is neither busy nor another's.
class ProgramLanesTest : public AutoTest {
 protected:
  void ExpectIdleLanes(const std::set<Lane>& busy, int ready_count) {
    SCOPED_TRACE(testing::Message() << busy.size() << " running, " << ready_count << " ready");
    Later(1'000'000);
    for (const Lane lane : busy) scene_.Running(kStep, lane);
    for (int i = 0; i < ready_count; ++i) scene_.Of(static_cast<uint32_t>(2 + i), kStep);
    Decide();
    EXPECT_EQ(plan_.op_count, ready_count);
    std::set<Lane> taken = busy;
    for (const PlannedLaunch& launch : plan_.launch_span()) {
      EXPECT_EQ(launch.count, 1);
      EXPECT_LT(launch.lane, kNormalEnd);
      EXPECT_TRUE(taken.insert(launch.lane).second) << "lane " << int{launch.lane};
    }
  }
};

TEST_F(ProgramLanesTest, BesideOneThatRunsEachProgramTakesAnIdleLane) {
  for (Lane busy = kFirstNormalLane; busy < kNormalEnd; ++busy) {
    for (int ready = 1; ready < kNormalLaneCount; ++ready) ExpectIdleLanes({busy}, ready);
  }
}

TEST_F(ProgramLanesTest, BesideSeveralThatRunEachProgramTakesAnIdleLane) {
  ExpectIdleLanes({0, 2, 5}, 5);
  ExpectIdleLanes({0, 1, 2, 3, 4, 5, 7}, 1);
}

TEST_F(AutoTest, AProgramOfTheHighClassGoesOutBesideALowerOneOnALaneOfItsClass) {
  scene_.Running(kStep, kFirstNormalLane)
      .Running(kStep, kFirstHighLane, Priority::kHigh)
      .Ready(kStep, Priority::kHigh);
  Decide();
  ASSERT_EQ(plan_.op_count, 1);
  EXPECT_TRUE(IsHighPriority(plan_.launches[0].lane));
  EXPECT_NE(plan_.launches[0].lane, kFirstHighLane);
}

// As what no budget holds to its share of the SMs.
TEST_F(AutoTest, AProgramWaitsForAHigherClassButNotForEver) {
  scene_.Running(kStep, kFirstHighLane, Priority::kHigh).Ready(kStep);
  EXPECT_TRUE(Decide().empty());
  EXPECT_EQ(plan_.reason, Reason::kHeldBack);
  scene_.now += kMaxHeldNs + 1;
  EXPECT_EQ(Decide().op_count, 1);
}

TEST_F(AutoTest, AProgramWaitsForGemmsOfAHigherClassThatAreReadyButNotForEver) {
  scene_.Ready(kSmall, Priority::kHigh).Ready(kStep, Priority::kLow);
  EXPECT_EQ(Decide().op_count, 1);
  EXPECT_EQ(LaunchOf(0), 0);
  EXPECT_EQ(plan_.reason, Reason::kPriorityFirst);
  scene_.now += kMaxHeldNs + 1;
  scene_.ready[0].ready_at = scene_.now;  // the high class is always back at once
  Decide();
  EXPECT_NE(LaunchOf(1), -1);
}

TEST_F(AutoTest, GroupsArePlannedAsWithoutAProgram) {
  scene_.Ready(kSmall).Ready(kSmall);
  const float alone_us = Decide().launches[0].predicted_us;
  scene_.Ready(kStep);
  Decide();
  ASSERT_EQ(plan_.op_count, 3);
  const PlannedLaunch& group = plan_.launches[LaunchOf(0)];
  EXPECT_EQ(LaunchOf(1), LaunchOf(0));
  EXPECT_EQ(group.form, Form::kGroup);
  EXPECT_EQ(group.predicted_us, alone_us);
  EXPECT_EQ(plan_.launches[LaunchOf(2)].count, 1);
}

}  // namespace
}  // namespace concert::policies::auto_test
