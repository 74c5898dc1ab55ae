// What becomes of a program's ops on their way to the step kernel: which of them are one stage, and
// what stages wait for.
#include "kernels/step/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/unit/kernels/step_recorder.h"

namespace concert::kernels {
namespace {

using testing::ElementsAre;

constexpr Address kArena = 0x300000000;

std::vector<std::string> TextsOf(const Program& program) {
  const absl::StatusOr<StepPlan> plan = PlanStep(program, kMiB);
  EXPECT_TRUE(plan.ok()) << plan.status();
  std::vector<std::string> stages;
  for (const PlannedStage& stage : plan->stages) stages.push_back(DescribeStage(program, stage));
  return stages;
}

// How stages' operands go, and what they wait for.
std::vector<std::string> WaysOf(const Program& program) {
  const absl::StatusOr<StepPlan> plan = PlanStep(program, kMiB);
  EXPECT_TRUE(plan.ok()) << plan.status();
  std::vector<std::string> ways;
  for (const PlannedStage& stage : plan->stages) {
    std::string way = absl::StrCat(
        stage.heads_from.has_value() ? absl::StrCat("of ", *stage.heads_from, " ") : "",
        stage.exchanges ? "out " : "");
    if (stage.kind == StageKind::kGemm) {
      way = absl::StrCat(stage.gemm.a_exchanged ? "a " : "", stage.gemm.c_exchanged ? "c " : "",
                         stage.gemm.stores_exchanged ? "d " : "",
                         stage.gemm.stores_d ? "stored " : "");
    }
    ways.push_back(absl::StrCat(way, "waits ", absl::StrJoin(stage.waits, ",")));
  }
  return ways;
}

// Two layers and a norm, with slots of their own for each layer or one set of slots for both.
std::unique_ptr<Program> TwoLayers(bool slots_again, const StepModel& model = {}) {
  StepRecorder recorder(model, kStepMemory);
  const uint32_t residual = recorder.Slot(model.hidden, /*binding=*/true);
  StepSlots slots = StepSlots::Of(recorder, model);
  uint32_t update = RecordLayer(recorder, model, slots, residual, 0);
  if (!slots_again) slots = StepSlots::Of(recorder, model);
  update = RecordLayer(recorder, model, slots, residual, update);
  if (update == 0) {
    recorder.Norm(residual, 0, slots.normed);
  } else {
    recorder.Norm(update, residual, slots.normed);
  }
  recorder.PlaceArena();
  return recorder.Bind(kArena);
}

TEST(StepPlanTest, ALayerIsFiveStages) {
  for (const bool slots_again : {false, true}) {
    EXPECT_THAT(TextsOf(*TwoLayers(slots_again)),
                ElementsAre("bindings",                             //
                            "gemm 1 <- rms_norm 0, rope_append 2",  //
                            "attention_decode 3", "gemm 4",         //
                            "gemm 6 <- rms_norm 5, gated_activation 7", "gemm 8",
                            "gemm 10 <- rms_norm 9, rope_append 11",  //
                            "attention_decode 12", "gemm 13",         //
                            "gemm 15 <- rms_norm 14, gated_activation 16", "gemm 17", "rms_norm 18",
                            "bindings"));
  }
}

// What the cost model is told: a GEMM reads its weights, and each block all of A.
TEST(StepPlanTest, StagesSayWhatTheyCost) {
  const StepModel model;
  const std::unique_ptr<Program> program = TwoLayers(true);
  const absl::StatusOr<StepPlan> plan = PlanStep(*program, kMiB);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<Program::Stage> stages = StagesOf(*program, *plan);
  ASSERT_EQ(stages.size(), plan->stages.size() - 2) << "bindings are used where they are given";
  EXPECT_EQ(stages[0].what, "gemm <- rms_norm, rope_append");
  EXPECT_EQ(stages[0].work.hbm_bytes, 2.0 * model.head_columns() * model.hidden);
  EXPECT_EQ(stages[0].work.read_by_all_bytes, 2.0 * model.rows * model.hidden);
  EXPECT_EQ(stages[0].work.items, model.head_columns() / 8);
  EXPECT_EQ(stages[0].work.items_a_pass, 8u);
  EXPECT_EQ(stages[1].work.hbm_bytes, static_cast<double>(program->ops[3].work.hbm_bytes));
}

// The residual stream begins as a copy of what the step is given, which both who read the copy can
// read themselves: the first norm, and the first GEMM that adds to it.
TEST(StepPlanTest, WhoReadsACopyReadsWhatWasCopied) {
  const StepModel model;
  StepRecorder recorder(model, kStepMemory);
  const uint32_t in = recorder.Slot(model.hidden, /*binding=*/true);
  const uint32_t residual = recorder.Slot(model.hidden);
  const StepSlots slots = StepSlots::Of(recorder, model);
  recorder.Copy(in, model.hidden, residual);
  recorder.Norm(RecordLayer(recorder, model, slots, residual, 0), residual, slots.normed);
  recorder.PlaceArena();
  const std::unique_ptr<Program> program = recorder.Bind(kArena);
  EXPECT_THAT(
      TextsOf(*program),
      ElementsAre("bindings", "gemm 2 <- rms_norm 1, rope_append 3, copy 0", "attention_decode 4",
                  "gemm 5", "gemm 7 <- rms_norm 6, gated_activation 8", "gemm 9", "rms_norm 10"));
  const absl::StatusOr<StepPlan> plan = PlanStep(*program, kMiB);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->stages[1].gemm.a, program->bindings[0].staged);
  EXPECT_EQ(plan->stages[3].gemm.c, program->bindings[0].staged);
  EXPECT_NE(plan->stages[3].gemm.d, program->bindings[0].staged);
}

TEST(StepPlanTest, ACopyOfWhatIsOverwrittenMeanwhileStays) {
  const StepModel model;
  StepRecorder recorder(model, kStepMemory);
  const uint32_t in = recorder.Slot(model.hidden, /*binding=*/true);
  const uint32_t copy = recorder.Slot(model.hidden), out = recorder.Slot(model.hidden);
  recorder.Copy(in, model.hidden, copy);
  recorder.Double(in, model.hidden, in);
  recorder.Gemm(copy, model.hidden, out, model.hidden);
  recorder.PlaceArena();
  EXPECT_THAT(TextsOf(*recorder.Bind(kArena)),
              ElementsAre("bindings", "copy 0", "elementwise 1", "gemm 2", "bindings"));
}

// Every tile would read it over the link.
TEST(StepPlanTest, ACopyFromAnotherGpuStays) {
  const StepModel model;
  constexpr uint32_t kAway = 3;
  std::vector<BufferRange> memory = kStepMemory;
  memory.push_back({0x500000000, kMiB, /*gpu=*/1, /*pool=*/true});
  for (const uint32_t source : {kStepCache, kAway}) {
    StepRecorder recorder(model, memory);
    const uint32_t copy = recorder.Slot(model.hidden);
    recorder.Copy(source, model.hidden, copy);
    recorder.Gemm(copy, model.hidden, recorder.Slot(model.hidden, true), model.hidden);
    recorder.PlaceArena();
    const std::vector<std::string> stages = TextsOf(*recorder.Bind(kArena));
    EXPECT_EQ(stages[1], source == kAway ? "copy 0" : "gemm 1 <- copy 0");
  }
}

// The norm, the gate and the residual of which strides have more than the GEMM's 32 bits.
TEST(StepPlanTest, WhatHasLongStridesStaysAnOp) {
  const StepModel model;
  constexpr uint32_t kWide = 2;
  const std::vector<BufferRange> memory = {
      {}, kStepMemory[kStepWeights], {uint64_t{1} << 40, uint64_t{1} << 40, 0, false}};
  for (const uint64_t stride : {uint64_t{1} << 31, (uint64_t{1} << 32) + 512}) {
    const bool fits = stride < uint64_t{1} << 32;
    StepRecorder norms(model, memory);
    const uint32_t normed = norms.Slot(model.hidden);
    norms.Norm(kWide, 0, normed).x_stride = stride;
    norms.Gemm(normed, model.hidden, norms.Slot(model.hidden), model.hidden);
    norms.PlaceArena();
    const std::unique_ptr<Program> normed_first = norms.Bind(kArena);

    StepRecorder gates(model, memory);
    const uint32_t x = gates.Slot(model.hidden, /*binding=*/true);
    const uint32_t halves = gates.Slot(2 * model.inner);
    gates.Gemm(x, model.hidden, halves, 2 * model.inner);
    gates.Gate(halves, kWide).out_stride = stride;
    gates.PlaceArena();
    const std::unique_ptr<Program> gated_behind = gates.Bind(kArena);
    if (fits) {
      EXPECT_THAT(TextsOf(*normed_first), ElementsAre("bindings", "gemm 1 <- rms_norm 0"));
      EXPECT_THAT(TextsOf(*gated_behind), ElementsAre("bindings", "gemm 0 <- gated_activation 1"));
    } else {
      EXPECT_THAT(TextsOf(*normed_first), ElementsAre("bindings", "rms_norm 0", "gemm 1"));
      EXPECT_THAT(TextsOf(*gated_behind), ElementsAre("bindings", "gemm 0", "gated_activation 1"));
    }
    StepRecorder adds(model, memory);
    const uint32_t update = adds.Slot(model.hidden);
    adds.Gemm(adds.Slot(model.hidden, /*binding=*/true), model.hidden, update, model.hidden);
    adds.Norm(update, kWide, adds.Slot(model.hidden)).residual_stride = stride;
    adds.PlaceArena();
    const absl::StatusOr<StepPlan> plan = PlanStep(*adds.Bind(kArena), kMiB);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->stages[1].gemm.c, fits ? memory[kWide].address : 0);
  }
}

// A GEMM's product that the op behind it reads in two ways has to be there.
TEST(StepPlanTest, AWeightThatTheGemmInFrontMakesKeepsItsStore) {
  const StepModel model;
  StepRecorder recorder(model, kStepMemory);
  const uint32_t update = recorder.Slot(model.hidden);
  recorder.Gemm(recorder.Slot(model.hidden, /*binding=*/true), model.hidden, update, model.hidden);
  recorder.Norm(update, recorder.Slot(model.hidden, true), recorder.Slot(model.hidden)).weight = {
      update, 0, 0};
  recorder.PlaceArena();
  const absl::StatusOr<StepPlan> plan = PlanStep(*recorder.Bind(kArena), kMiB);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->stages[1].gemm.c, 0u) << "the product is added to the residual alone";
}

TEST(StepPlanTest, IndicesAndAnglesThatTheGemmInFrontMakesKeepItsStore) {
  const StepModel model;
  for (concert_operand concert_rope_append_body::*const operand :
       {&concert_rope_append_body::positions, &concert_rope_append_body::slots,
        &concert_rope_append_body::cos_sin}) {
    for (const uint32_t columns : {model.q_heads, model.q_heads + model.kv_heads}) {
      StepRecorder recorder(model, kStepMemory);
      const uint32_t heads = recorder.Slot(model.head_columns());
      recorder.Gemm(recorder.Slot(model.hidden, /*binding=*/true), model.hidden, heads,
                    model.head_columns());
      concert_rope_append_body& rope = recorder.Rope(heads);
      rope.positions_max = 1;
      rope.*operand = {heads, 0, columns * model.dim * 2};
      recorder.PlaceArena();
      EXPECT_THAT(TextsOf(*recorder.Bind(kArena)),
                  ElementsAre("bindings", "gemm 0", "rope_append 1"));
    }
  }
}

// Logits of any number of words. Only rows of whole words go from stage to stage by the exchange.
TEST(StepPlanTest, ColumnsNeedBeNoWholeTiles) {
  const StepModel model;
  for (const uint32_t columns : {50u, 51u}) {
    StepRecorder recorder(model, kStepMemory);
    const uint32_t x = recorder.Slot(model.hidden, /*binding=*/true);
    const uint32_t first = recorder.Slot(columns), second = recorder.Slot(columns, true);
    recorder.Gemm(x, model.hidden, first, columns);
    recorder.Gemm(x, model.hidden, second, columns);
    recorder.Double(first, columns, recorder.Slot(columns, true));
    recorder.PlaceArena();
    const std::unique_ptr<Program> program = recorder.Bind(kArena);
    const absl::StatusOr<StepPlan> plan = PlanStep(*program, kMiB);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->stages[1].gemm.units(), 7u);
    EXPECT_EQ(plan->stages[1].gemm.stores_elements(), columns == 51);
    EXPECT_EQ(StagesOf(*program, *plan)[0].work.items, 7u);
  }
  const auto added = [&](uint32_t columns) {
    StepRecorder recorder(model, kStepMemory);
    const uint32_t x = recorder.Slot(model.hidden, /*binding=*/true);
    const uint32_t first = recorder.Slot(columns), second = recorder.Slot(columns, true);
    recorder.Gemm(x, model.hidden, first, columns);
    concert_gemm_body& adds = recorder.Gemm(x, model.hidden, second, columns);
    adds.c = {first, 0, 0}, adds.ldc = columns, adds.beta = 1;
    recorder.PlaceArena();
    return PlanStep(*recorder.Bind(kArena), kMiB);
  };
  ASSERT_TRUE(added(50).ok()) << added(50).status();
  EXPECT_TRUE(added(50)->stages[2].gemm.c_exchanged);
  EXPECT_THAT(
      added(51).status().message(),
      testing::HasSubstr("op 1, gemm: C must begin at a multiple of 4 bytes, and its stride "
                         "be even"));
}

// A thread has registers for half as many units where A has more than 16 rows.
TEST(StepPlanTest, MoreRowsArePassesOverFewerUnits) {
  StepModel model;
  model.rows = 17;
  StepRecorder recorder(model, kStepMemory);
  const uint32_t x = recorder.Slot(model.hidden, /*binding=*/true);
  recorder.Gemm(x, model.hidden, recorder.Slot(model.hidden), model.hidden);
  recorder.PlaceArena();
  const std::unique_ptr<Program> program = recorder.Bind(kArena);
  const absl::StatusOr<StepPlan> plan = PlanStep(*program, kMiB);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(StagesOf(*program, *plan)[0].work.items_a_pass, 6u);
}

TEST(StepPlanTest, AStageWaitsForTheOneThatMakesWhatItReads) {
  const absl::StatusOr<StepPlan> plan = PlanStep(*TwoLayers(true), 0);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (size_t i = 1; i < plan->stages.size(); ++i)
    EXPECT_THAT(plan->stages[i].waits, ElementsAre(i - 1)) << i;
}

// A residual that a GEMM adds to is what a norm behind it would have folded into it.
TEST(StepPlanTest, GemmsThatAddToTheResidualAreTheSameStages) {
  StepModel model;
  model.gemms_add = true;
  for (const bool slots_again : {false, true}) {
    EXPECT_EQ(TextsOf(*TwoLayers(slots_again, model)), TextsOf(*TwoLayers(slots_again)));
    EXPECT_EQ(WaysOf(*TwoLayers(slots_again, model)), WaysOf(*TwoLayers(slots_again)));
  }
}

// Stages' numbers of ops differ, since there are fewer ops; all else is the same.
TEST(StepPlanTest, GemmsThatGateAreTheSameStages) {
  for (const bool interleaved : {false, true}) {
    StepModel model;
    model.interleaved = interleaved;
    const auto ops = TwoLayers(true, model);
    model.gemms_gate = true;
    const auto gated = TwoLayers(true, model);
    EXPECT_THAT(
        TextsOf(*gated),
        ElementsAre("bindings", "gemm 1 <- rms_norm 0, rope_append 2", "attention_decode 3",
                    "gemm 4", "gemm 6 <- rms_norm 5", "gemm 7",
                    "gemm 9 <- rms_norm 8, rope_append 10", "attention_decode 11", "gemm 12",
                    "gemm 14 <- rms_norm 13", "gemm 15", "rms_norm 16", "bindings"));
    EXPECT_EQ(WaysOf(*gated), WaysOf(*ops));
    const absl::StatusOr<StepPlan> want = PlanStep(*ops, kMiB), got = PlanStep(*gated, kMiB);
    ASSERT_TRUE(want.ok() && got.ok());
    for (const size_t i : {4, 9}) {
      const StepGemm &x = want->stages[i].gemm, &y = got->stages[i].gemm;
      EXPECT_EQ(y.epilogue, interleaved ? StepEpilogue::kGatedNeighbours : StepEpilogue::kGated);
      EXPECT_TRUE(x.epilogue == y.epilogue && x.activation == y.activation);
      EXPECT_TRUE(x.m == y.m && x.n == y.n && x.k == y.k && x.ldd == y.ldd && x.c == y.c);
      EXPECT_TRUE(x.gain == y.gain && x.w == y.w && x.exchanged == y.exchanged);
    }
  }
}

TEST(StepPlanTest, RefusesResidualsBehindActivations) {
  const StepModel model;
  StepRecorder recorder(model, kStepMemory);
  const uint32_t x = recorder.Slot(model.hidden, /*binding=*/true);
  recorder.GemmOnto(x, model.hidden, recorder.Slot(model.hidden, /*binding=*/true)).activation =
      CONCERT_ABI_ACT_SILU;
  recorder.PlaceArena();
  EXPECT_EQ(PlanStep(*recorder.Bind(kArena), kMiB).status().message(),
            "op 0, gemm: it adds a residual behind its activation");
}

TEST(StepPlanTest, RefusesScalesOfRows) {
  const StepModel model;
  StepRecorder recorder(model, kStepMemory);
  const uint32_t x = recorder.Slot(model.hidden, /*binding=*/true);
  concert_gemm_body& gemm = recorder.Gemm(x, model.hidden, recorder.Slot(model.hidden), 64);
  gemm.a.scales = kStepWeights, gemm.flags = CONCERT_GEMM_A_SCALES_PER_ROW;
  recorder.PlaceArena();
  EXPECT_EQ(PlanStep(*recorder.Bind(kArena), kMiB).status().message(),
            "op 0, gemm: its rows of A have scales");
}

TEST(StepPlanTest, SaysWhatKeepsAProgramFromTheStepKernel) {
  StepModel model;
  model.rows = 33;
  StepRecorder recorder(model, kStepMemory);
  const uint32_t x = recorder.Slot(model.hidden, /*binding=*/true);
  recorder.Gemm(x, model.hidden, recorder.Slot(model.hidden), model.hidden);
  recorder.PlaceArena();
  EXPECT_EQ(PlanStep(*recorder.Bind(kArena), kMiB).status().message(),
            "op 0, gemm: it has more than 32 rows");

  StepRecorder attends(model, kStepMemory);
  const uint32_t heads = attends.Slot(model.head_columns(), /*binding=*/true);
  attends.Attend(heads, attends.Slot(model.q_heads * model.dim));
  attends.PlaceArena();
  EXPECT_EQ(PlanStep(*attends.Bind(kArena), kMiB).status().message(),
            "op 0, attention_decode: it has more than 32 rows");
}

TEST(StepPlanTest, RefusesHeadsThatItsAttentionHasNoCodeFor) {
  StepModel model;
  model.dim = 256;
  StepRecorder recorder(model, kStepMemory);
  const uint32_t heads = recorder.Slot(model.head_columns(), /*binding=*/true);
  recorder.Attend(heads, recorder.Slot(model.q_heads * model.dim));
  recorder.PlaceArena();
  EXPECT_EQ(PlanStep(*recorder.Bind(kArena), kMiB).status().message(),
            "op 0, attention_decode: only heads of 64 and 128 are supported");
}

TEST(StepPlanTest, RefusesCachesInFp8) {
  const StepModel model;
  for (const bool attends : {false, true}) {
    StepRecorder recorder(model, kStepMemory);
    const uint32_t heads = recorder.Slot(model.head_columns(), /*binding=*/true);
    const uint32_t out = recorder.Slot(model.q_heads * model.dim);
    if (attends) {
      recorder.Attend(heads, out).cache_dtype = CONCERT_ABI_FP8_E4M3;
    } else {
      recorder.Rope(heads).cache_dtype = CONCERT_ABI_FP8_E4M3;
    }
    recorder.PlaceArena();
    EXPECT_EQ(PlanStep(*recorder.Bind(kArena), kMiB).status().message(),
              absl::StrCat("op 0, ", attends ? "attention_decode" : "rope_append",
                           ": only caches in bf16 are supported"));
  }
}

// Pages that overlap make so many tokens of little memory. The last token's number stands for none.
TEST(StepPlanTest, RefusesCachesOfMoreTokensThan32BitsCount) {
  const StepModel model;
  for (const uint32_t pages : {(1u << 16) - 1, 1u << 16}) {
    StepRecorder recorder(model, kStepMemory);
    const uint32_t heads = recorder.Slot(model.head_columns(), /*binding=*/true);
    concert_kv_cache_abi& cache =
        recorder.Attend(heads, recorder.Slot(model.q_heads * model.dim)).cache;
    cache.pages = pages, cache.page_size = 1 << 16;
    cache.page_stride = cache.token_stride = cache.head_stride = model.dim;
    recorder.PlaceArena();
    EXPECT_EQ(PlanStep(*recorder.Bind(kArena), kMiB).status().message(),
              pages < 1u << 16 ? "" : "op 0, attention_decode: its cache has 2^32 tokens or more");
  }
}

TEST(StepPlanTest, WhatGemmsAndAttentionMakeForOthersGoesThroughTheExchange) {
  EXPECT_THAT(WaysOf(*TwoLayers(true)),
              ElementsAre("waits ", "d waits 0", "of 1 out waits ", "a d waits 0", "a d waits ",
                          "a c d waits ", "a d waits ", "of 6 out waits ", "a c d waits ",
                          "a d waits ", "a c stored waits 1", "waits 10", "waits 11,6"));
}

// Where bindings are used as they are given, nobody waits for what a layer appends to its cache.
TEST(StepPlanTest, MostStagesAreOnlyAwaitedByWhoCopiesBindingsOut) {
  const absl::StatusOr<StepPlan> plan = PlanStep(*TwoLayers(true), kMiB);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_TRUE(plan->copies_out);
  std::vector<Awaited> awaited;
  for (const PlannedStage& stage : plan->stages) awaited.push_back(stage.awaited);
  constexpr Awaited kNever = Awaited::kNever, kCopyOut = Awaited::kByCopyOut;
  constexpr Awaited kAlways = Awaited::kAlways;
  EXPECT_THAT(awaited, ElementsAre(kAlways, kAlways, kNever, kNever, kNever, kNever, kCopyOut,
                                   kNever, kNever, kNever, kAlways, kCopyOut, kNever));
}

// The second layer reads what the first has appended, which may be anything that it reads.
TEST(StepPlanTest, ACacheThatOthersAppendToIsReadBehindThem) {
  StepModel model;
  model.one_cache = true;
  EXPECT_THAT(WaysOf(*TwoLayers(true, model)),
              ElementsAre("waits ", "d waits 0", "of 1 out waits ", "a d waits 0", "a d waits ",
                          "a c d waits ", "a stored waits 1", "out waits 6", "a c d waits ",
                          "a d waits ", "a c stored waits ", "waits 10", "waits 11"));
}

}  // namespace
}  // namespace concert::kernels
