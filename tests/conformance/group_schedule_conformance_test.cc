// Group launches with the schedules that GroupPlanner makes.
#include <algorithm>
#include <memory>

#include "policies/group_planner.h"
#include "tests/conformance/group_fixture.h"

namespace concert::daemon::conformance {
namespace {

class GroupScheduleConformanceTest : public GroupConformanceTest {
 protected:
  void SetUp() override {
    GroupConformanceTest::SetUp();
    if (IsSkipped()) return;
    if (!gpu().info().model.group_kernel) GTEST_SKIP() << "no group kernel on this GPU";
    planner_ = std::make_unique<policies::GroupPlanner>(gpu().info().model);
  }

  const policies::GroupSchedule* ScheduleOf(std::span<const Op* const> ops, int budget) override {
    std::vector<policies::Problem> problems;
    for (const Op* op : ops) {
      problems.push_back(policies::Problem::Of(op->work));
      EXPECT_TRUE(policies::GroupPlanner::Takes(problems.back()));
    }
    const policies::GroupSchedule* schedule = planner_->Plan(problems, budget);
    EXPECT_NE(schedule, nullptr);
    return schedule;
  }

  std::unique_ptr<policies::GroupPlanner> planner_;
};

TEST_P(GroupScheduleConformanceTest, MixedShapesEachWithItsTimeline) { RunShapes(kMixedShapes); }

TEST_P(GroupScheduleConformanceTest, BiasActivationBetaAndCInPlace) { RunShapes(kEpilogues); }

TEST_P(GroupScheduleConformanceTest, AnyNumberOfBlocks) {
  for (const int budget : {1, 7, 66}) {
    SCOPED_TRACE("budget " + std::to_string(budget));
    RunShapes(kMixedShapes, budget);
  }
}

// Few tiles and a long K: parts of one tile's sum meet.
TEST_P(GroupScheduleConformanceTest, SplitTiles) {
  const std::vector<GroupCase> shapes = {{.m = 4, .n = 128, .k = 4096},
                                         {.m = 20, .n = 256, .k = 2048, .bias = true}};
  RunShapes(shapes);
  RunShapes(shapes);  // what the first left behind must not show
}

TEST_P(GroupScheduleConformanceTest, ALaunchSeesWhatTheOneBeforeMade) {
  RunDependentLaunches(/*weights_settled=*/true);
  RunDependentLaunches(/*weights_settled=*/false);
}

TEST_P(GroupScheduleConformanceTest, BackToBackEqualsOneByOne) { CompareChains(200, 2027); }

CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(GroupScheduleConformanceTest);

}  // namespace
}  // namespace concert::daemon::conformance
