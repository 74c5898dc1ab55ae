// Lists of stages that are not what their program does, or never end: the check finds each.
#include "kernels/step/step_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>

#include "tests/support/repetitions.h"
#include "tests/support/seed.h"
#include "tests/unit/kernels/random_step.h"

namespace concert::kernels {
namespace {

using testing::AllOf, testing::HasSubstr;

constexpr Address kArena = 0x300000000;

std::unique_ptr<Program> RandomProgram(std::mt19937& random) {
  StepModel model = RandomModel(random);
  model.advances_slots = random() % 2 == 0;
  StepRecorder recorder(model, kStepMemory);
  RecordRandom(recorder, model, random);
  recorder.PlaceArena();
  return recorder.Bind(kArena);
}

TEST(StepCheckTest, EveryWaitIsMissed) {
  std::mt19937 random(test::Seed());
  SCOPED_TRACE(testing::Message() << "seed " << test::Seed());
  const uint32_t rounds = test::Repetitions(40);
  for (uint32_t round = 0; round < rounds; ++round) {
    const std::unique_ptr<Program> program = RandomProgram(random);
    const absl::StatusOr<StepPlan> plan = PlanStep(*program, round % 3 == 0 ? 0 : kMiB);
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (size_t i = 0; i < plan->stages.size(); ++i) {
      for (size_t wait = 0; wait < plan->stages[i].waits.size(); ++wait) {
        StepPlan hasty = *plan;
        std::vector<uint32_t>& waits = hasty.stages[i].waits;
        waits.erase(waits.begin() + static_cast<ptrdiff_t>(wait));
        const absl::Status status = CheckStep(*program, hasty);
        ASSERT_EQ(status.code(), absl::StatusCode::kInternal)
            << "round " << round << ": " << DescribeStage(*program, plan->stages[i])
            << " without wait " << wait;
        EXPECT_THAT(status.message(), HasSubstr("does not wait for it"));
      }
    }
  }
}

// Two layers, whose results go by the exchange where they can: stages 0, bindings; 1, q, k and v;
// 2, attention; 3, what adds to the residual; 4, gates; 5, what adds to it again; and the same
// again.
class StepCheckOfLayersTest : public testing::Test {
 protected:
  // What is said of the plan with this change.
  std::string Say(const std::function<void(StepPlan&)>& change,
                  uint64_t exchange_bytes_max = kMiB) {
    const std::unique_ptr<Program> program = kernels::Layers(StepModel(), kArena);
    absl::StatusOr<StepPlan> plan = PlanStep(*program, exchange_bytes_max);
    EXPECT_TRUE(plan.ok()) << plan.status();
    change(*plan);
    const absl::Status status = CheckStep(*program, *plan);
    EXPECT_TRUE(status.ok() || absl::IsInternal(status)) << status;
    return std::string(status.message());
  }
};

TEST_F(StepCheckOfLayersTest, AsPlannedTheyPass) {
  EXPECT_EQ(Say([](StepPlan&) {}), "");
}

TEST_F(StepCheckOfLayersTest, WaitsThatNeverEnd) {
  EXPECT_THAT(Say([](StepPlan& plan) { plan.stages[3].waits.push_back(3); }),
              HasSubstr("waits for stage 3, which is not before"));
  EXPECT_THAT(Say([](StepPlan& plan) { plan.stages[3].waits.push_back(7); }),
              HasSubstr("waits for stage 7, which is not before"));
  EXPECT_THAT(Say([](StepPlan& plan) {
                plan.stages[2].awaited = Awaited::kByCopyOut;
                plan.stages[4].waits.push_back(2);
              }),
              AllOf(HasSubstr("stage 4, gemm 6 <- "),
                    HasSubstr("waits for stage 2, which tells nobody of its end")));
  EXPECT_THAT(Say([](StepPlan& plan) { plan.stages[2].heads_from = 6; }),
              HasSubstr("reads what a later stage makes"));
}

TEST_F(StepCheckOfLayersTest, ResultsThatNobodyLeavesInTheExchange) {
  EXPECT_THAT(Say([](StepPlan& plan) { plan.stages[3].gemm.a += 256; }),
              HasSubstr("looks for A where no earlier stage leaves it"));
  EXPECT_THAT(Say([](StepPlan& plan) { plan.stages[3].looks_for.clear(); }),
              HasSubstr("looks for A where no earlier stage leaves it"));
  EXPECT_THAT(Say([](StepPlan& plan) { plan.stages[2].exchanges = false; }),
              HasSubstr("looks for A where no earlier stage leaves it"));
  EXPECT_THAT(Say([](StepPlan& plan) { plan.stages[5].gemm.c += 256; }),
              HasSubstr("looks for C where no earlier stage leaves it"));
  EXPECT_THAT(Say([](StepPlan& plan) { plan.stages[2].op.attention_decode.q += 256; }),
              HasSubstr("looks for q where no earlier stage leaves it"));
  EXPECT_THAT(Say([](StepPlan& plan) { plan.stages[3].a_from.reset(); }),
              HasSubstr("does not say which stage makes its A"));
  EXPECT_THAT(Say([](StepPlan& plan) { plan.exchange_bytes = 256; }),
              HasSubstr("leaves a result outside of the exchange"));
  EXPECT_THAT(
      Say([](StepPlan& plan) { plan.stages[4].gemm.exchanged = plan.stages[3].gemm.exchanged; }),
      HasSubstr("leaves a result where stage 3 leaves one"));
}

TEST_F(StepCheckOfLayersTest, WhatIsNotWrittenOrChangesMeanwhile) {
  EXPECT_THAT(Say([](StepPlan& plan) { plan.stages[kTablesStage].copy.count = 0; }),
              HasSubstr("stage 1, gemm 1 <- rms_norm 0, rope_append 2: reads of the arena what "
                        "nobody has written"));
  EXPECT_THAT(Say([](StepPlan& plan) {
                plan.stages[3].gemm.d = plan.stages[1].gemm.w;
                plan.stages[3].gemm.stores_d = true;
              }),
              HasSubstr("reads ahead what stage 3 writes"));
  EXPECT_THAT(Say([](StepPlan& plan) {
                plan.stages[1].gemm.d = plan.stages[2].op.attention_decode.page_table;
                plan.stages[1].gemm.stores_d = true;
                plan.stages[2].waits.push_back(1);
                plan.stages[1].awaited = Awaited::kAlways;
              }),
              HasSubstr("reads ahead what stage 1 writes"));
}

TEST_F(StepCheckOfLayersTest, OpsInAnotherOrder) {
  const auto swap = [](StepPlan& plan) { std::swap(plan.stages[3].ops, plan.stages[4].ops); };
  EXPECT_THAT(Say(swap, /*exchange_bytes_max=*/0), HasSubstr("does op 4 behind op 5"));
}

}  // namespace
}  // namespace concert::kernels
