// Group launches without a work list.
#include "tests/conformance/group_fixture.h"

namespace concert::daemon::conformance {
namespace {

TEST_P(GroupConformanceTest, MixedShapesEachWithItsTimeline) { RunShapes(kMixedShapes); }

TEST_P(GroupConformanceTest, BiasActivationBetaAndCInPlace) { RunShapes(kEpilogues); }

TEST_P(GroupConformanceTest, AnySmBudget) {
  for (const int budget : {1, 7, 66}) {
    SCOPED_TRACE("budget " + std::to_string(budget));
    RunShapes(kMixedShapes, budget);
  }
}

// What no group kernel can carry is computed all the same: rows that begin at odd addresses.
TEST_P(GroupConformanceTest, RowsThatAreNotAligned) {
  const std::vector<GroupCase> shapes = {{.m = 20, .n = 33, .k = 17},
                                         {.m = 16, .n = 64, .k = 64},
                                         {.m = 5, .n = 70, .k = 31, .padding = 2, .bias = true}};
  RunShapes(shapes);
}

TEST_P(GroupConformanceTest, OneProblem) { RunShapes(std::span(kMixedShapes).first(1)); }

TEST_P(GroupConformanceTest, ALaunchSeesWhatTheOneBeforeMade) {
  RunDependentLaunches(/*weights_ready=*/true);
  RunDependentLaunches(/*weights_ready=*/false);
}

TEST_P(GroupConformanceTest, BackToBackEqualsOneByOne) { CompareChains(200, 2026); }

CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(GroupConformanceTest);

}  // namespace
}  // namespace concert::daemon::conformance
