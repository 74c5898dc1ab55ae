// Group launches with the work lists that GroupCompiler makes.
#include <algorithm>
#include <memory>

#include "kernels/group/group_operand.h"
#include "kernels/group/plan/compiler.h"
#include "tests/conformance/group_fixture.h"

namespace concert::daemon::conformance {
namespace {

class WorkListConformanceTest : public GroupConformanceTest {
 protected:
  void SetUp() override {
    GroupConformanceTest::SetUp();
    if (IsSkipped()) return;
    if (!gpu().info().model.group_kernel) GTEST_SKIP() << "no group kernel on this GPU";
    compiler_ = std::make_unique<kernels::GroupCompiler>(gpu().info().model);
  }

  const kernels::GroupWorkList* ScheduleOf(std::span<const Op* const> ops, int budget) override {
    std::vector<policies::Problem> problems;
    for (const Op* op : ops) {
      problems.push_back(policies::Problem::Of(op->work));
      EXPECT_TRUE(kernels::GroupRepackBytes(op->gemm).has_value());
    }
    const kernels::GroupWorkList* work_list = compiler_->Compile(problems, budget);
    EXPECT_NE(work_list, nullptr);
    return work_list;
  }

  std::unique_ptr<kernels::GroupCompiler> compiler_;
};

TEST_P(WorkListConformanceTest, MixedShapesEachWithItsTimeline) { RunShapes(kMixedShapes); }

TEST_P(WorkListConformanceTest, BiasActivationBetaAndCInPlace) { RunShapes(kEpilogues); }

TEST_P(WorkListConformanceTest, AnyNumberOfBlocks) {
  for (const int budget : {1, 7, 66}) {
    SCOPED_TRACE("budget " + std::to_string(budget));
    RunShapes(kMixedShapes, budget);
  }
}

// Few tiles and a long K: parts of one tile's sum meet.
TEST_P(WorkListConformanceTest, SplitTiles) {
  const std::vector<GroupCase> shapes = {{.m = 4, .n = 128, .k = 4096},
                                         {.m = 20, .n = 256, .k = 2048, .bias = true}};
  RunShapes(shapes);
  RunShapes(shapes);  // what the first left behind must not show
}

TEST_P(WorkListConformanceTest, ALaunchSeesWhatTheOneBeforeMade) {
  RunDependentLaunches(/*weights_ready=*/true);
  RunDependentLaunches(/*weights_ready=*/false);
}

TEST_P(WorkListConformanceTest, BackToBackEqualsOneByOne) { CompareChains(200, 2027); }

CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(WorkListConformanceTest);

}  // namespace
}  // namespace concert::daemon::conformance
