// What a run of a program is predicted to take, by engine, and that CostOf says so of its work.
#include "policies/cost/program_cost.h"

#include <gtest/gtest.h>

#include <vector>

#include "policies/cost/cost_model.h"
#include "policies/seam/hash.h"
#include "tests/unit/policies/works.h"

namespace concert::policies {
namespace {

const DeviceModel kH200;

TEST(GraphCostTest, IsTheSumOfItsKernelsAndTheLinksBetweenThem) {
  const std::vector<Work> kernels = {Gemm(8, 3072, 1024), Rows(8, 1024), Copy(1 << 16)};
  const ProgramCostConstants costs{.graph_link_us = 0.5};
  double us = 0;
  for (const Work& kernel : kernels) us += SoloUs(kH200, kernel) + 0.5;
  EXPECT_DOUBLE_EQ(GraphCost(kH200, kernels, costs).us, us);
  EXPECT_EQ(GraphCost(kH200, {}).us, 0);
}

TEST(GraphCostTest, HoldsTheSmsThatItsKernelsHoldOnTheAverage) {
  const std::vector<Work> large(20, Gemm(8192, 8192, 8192)), small(20, Rows(8, 1024));
  EXPECT_GT(GraphCost(kH200, large).sms, 100);
  EXPECT_LT(GraphCost(kH200, small).sms, 8);
}

StageWork GemmStage(uint32_t rows, uint32_t n, uint32_t k) {
  return {.flops = 2.0 * rows * n * k,
          .hbm_bytes = 2.0 * n * k,
          .read_by_all_bytes = 2.0 * rows * k,
          .items = n / 8,
          .items_a_pass = 8};
}

// 11,264 columns are 1408 units: 11 for the block that has most, of 132, 22 of 66.
TEST(StepCostTest, ABlockGoesOnceThroughAStageForSoManyUnits) {
  const StageWork gate_up = GemmStage(8, 11264, 2048);
  EXPECT_EQ(PassesOf(kH200, gate_up), 2);
  EXPECT_EQ(PassesOf(kH200, gate_up, {.sm_count = 66}), 3);
  EXPECT_EQ(PassesOf(kH200, GemmStage(8, 3072, 1024)), 1);
  const StageWork attention{.hbm_bytes = 16e6};
  EXPECT_EQ(PassesOf(kH200, attention, {.sm_count = 1}), 1);
  const double one_us = StageUs(kH200, gate_up, {}, {.step_pass_us = 1});
  EXPECT_NEAR(StageUs(kH200, gate_up, {}, {.step_pass_us = 3}), one_us + 2 * 2, 1e-9);
}

TEST(StepCostTest, AStageTakesWhatMemoryTakesAndItsPasses) {
  const StageWork stage{.hbm_bytes = 40e6};
  const double rate = kH200.hbm_bytes_per_s * ProgramCostConstants().step_hbm_share;
  EXPECT_NEAR(StageUs(kH200, stage, {}, {.step_pass_us = 2}), 2 + 40e12 / rate, 1e-9);
  EXPECT_NEAR(StageUs(kH200, stage, {.hbm_bytes_per_s = 1e12}, {.step_pass_us = 2}), 42, 1e-9);
}

// One SM draws what it can, whatever memory has to spare; where arithmetic takes longer, that.
TEST(StepCostTest, ABlockIsBoundByItsSm) {
  const StageWork uneven{.hbm_bytes = 1e6, .items = 133};
  EXPECT_GT(StageUs(kH200, uneven, {.hbm_bytes_per_s = 1e15}),
            1.9 * StageUs(kH200, StageWork{.hbm_bytes = 1e6, .items = 132},
                          {.hbm_bytes_per_s = 1e15}, {.step_pass_us = 0}));
  const StageWork deep{.flops = 1e12};
  EXPECT_GT(StageUs(kH200, deep), 1e6 * 1e12 / kH200.tensor_flops);
  EXPECT_NEAR(StageUs(kH200, deep, {.sm_count = 66}, {.step_pass_us = 0}),
              2 * StageUs(kH200, deep, {}, {.step_pass_us = 0}), 1e-6);
}

TEST(StepCostTest, ALaunchHoldsItsSmsAndTakesTheSumOfItsStages) {
  const std::vector<StageWork> stages = {GemmStage(8, 3072, 1024), {.hbm_bytes = 16e6}};
  const RunCost all = StepCost(kH200, stages), half = StepCost(kH200, stages, {.sm_count = 66});
  EXPECT_EQ(all.sms, 132);
  EXPECT_EQ(half.sms, 66);
  EXPECT_DOUBLE_EQ(all.us, StageUs(kH200, stages[0]) + StageUs(kH200, stages[1]));
}

TEST(RunWorkTest, CostsWhatTheProgramWasPredictedToTake) {
  Work run = ProgramOf(110, 500'000'000);
  run.run_us = 320, run.m = 132;
  EXPECT_FLOAT_EQ(static_cast<float>(SoloUs(kH200, run)), 320);
  EXPECT_EQ(CostOf(kH200, run).sm_share, 1);
  run.m = 33;
  EXPECT_NEAR(CostOf(kH200, run).sm_share, 0.25, 1e-9);
  EXPECT_NEAR(CostOf(kH200, run).hbm_us, 500e12 / 4.2e12 / kH200.costs.hbm_efficiency, 1e-3);
  const Work* const both[] = {&run, &run};
  EXPECT_LT(CoRunUs(kH200, both), 1.1 * 320) << "each leaves three quarters of the SMs";
  Work other = run;
  other.run_us = 321;
  EXPECT_NE(HashWork(run), HashWork(other));
}

TEST(StepTogetherTest, IsBetweenARunAloneAndAllOneAfterTheOther) {
  const std::vector<StageWork> stages(20, GemmStage(8, 5632, 1024));
  const double alone_us = StepCost(kH200, stages).us;
  EXPECT_NEAR(StepTogetherUs(kH200, stages, 1), alone_us, 0.05 * alone_us);
  double before_us = alone_us;
  for (const int clients : {2, 4, 8}) {
    const double us = StepTogetherUs(kH200, stages, clients);
    EXPECT_GT(us, before_us);
    EXPECT_LT(us, clients * alone_us) << "memory has to spare beside one";
    before_us = us;
  }
}

// Of what only waits for memory each gets its share of that.
TEST(StepTogetherTest, IsBoundByMemory) {
  const std::vector<StageWork> stages(4, StageWork{.hbm_bytes = 1e9});
  const double all_us = 8 * 4e15 / (kH200.hbm_bytes_per_s * ProgramCostConstants().step_hbm_share);
  EXPECT_NEAR(StepTogetherUs(kH200, stages, 8) / all_us, 1, 0.02);
}

}  // namespace
}  // namespace concert::policies
