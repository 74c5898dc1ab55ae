// What operators and the scheduler are told that a program takes, by engine and by part.
#include "kernels/program/program_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/step/step_plan.h"
#include "policies/cost/cost_model.h"
#include "tests/unit/kernels/step_recorder.h"

namespace concert::kernels {
namespace {

using testing::ElementsAre;

const policies::DeviceModel kDevice;

// `layers` of a model, with one set of slots for all.
std::unique_ptr<Program> Layers(int layers, const StepModel& model = {}) {
  StepRecorder recorder(model, kStepMemory);
  const uint32_t residual = recorder.Slot(model.hidden, /*binding=*/true);
  const StepSlots slots = StepSlots::Of(recorder, model);
  for (int i = 0; i < layers; ++i)
    RecordLayer(recorder, model, slots, residual, i == 0 ? 0 : slots.update);
  recorder.PlaceArena();
  std::unique_ptr<Program> program = recorder.Bind(0x300000000);
  const absl::StatusOr<StepPlan> plan = PlanStep(*program, kStepExchangeBytes);
  if (plan.ok()) program->stages = StagesOf(*program, *plan);
  return program;
}

std::vector<std::string> TextsOf(const EngineTimes& times) {
  std::vector<std::string> texts;
  for (const ProgramPart& part : times.parts)
    texts.push_back(std::to_string(part.count) + " " + part.what);
  return texts;
}

double SumOf(const EngineTimes& times) {
  return std::accumulate(
      times.parts.begin(), times.parts.end(), 0.0,
      [](double us, const ProgramPart& part) { return us + part.count * part.predicted_us; });
}

TEST(ProgramTimesTest, LayersAreAlikeAndPartsMakeTheWhole) {
  const std::unique_ptr<Program> program = Layers(3);
  const std::vector<EngineTimes> engines = TimesOf(kDevice, *program);
  ASSERT_EQ(engines.size(), 2u);
  EXPECT_EQ(engines[0].engine, ProgramEngine::kStep);
  EXPECT_THAT(TextsOf(engines[0]),
              ElementsAre("3 gemm <- rms_norm, rope_append", "3 attention_decode", "3 gemm",
                          "3 gemm <- rms_norm, gated_activation", "3 gemm"));
  EXPECT_EQ(engines[1].engine, ProgramEngine::kGraph);
  EXPECT_THAT(TextsOf(engines[1]),
              ElementsAre("2 bindings", "3 gemm <- rms_norm, rope_append", "3 attention_decode",
                          "3 gemm", "3 gemm <- rms_norm, gated_activation", "3 gemm"));
  for (const EngineTimes& engine : engines)
    EXPECT_NEAR(SumOf(engine), engine.predicted_us, 1e-6 * engine.predicted_us);
}

TEST(ProgramTimesTest, WhatNoStepKernelRunsIsAGraph) {
  StepModel model;
  model.rows = 33;
  const std::unique_ptr<Program> program = Layers(1, model);
  const std::vector<EngineTimes> engines = TimesOf(kDevice, *program);
  ASSERT_EQ(engines.size(), 1u);
  EXPECT_EQ(engines[0].engine, ProgramEngine::kGraph);
  EXPECT_GT(engines[0].predicted_us, 6 * kDevice.kernel_floor_us);
}

TEST(ProgramTimesTest, RunsTakeWhatTheirEngineTakes) {
  const std::unique_ptr<Program> step = Layers(2), graph = Layers(2);
  graph->stages.clear();
  SetRunTime(kDevice, *step);
  SetRunTime(kDevice, *graph);
  EXPECT_FLOAT_EQ(step->work.run_us, static_cast<float>(TimesOf(kDevice, *step)[0].predicted_us));
  EXPECT_EQ(step->work.m, 132u) << "a launch holds all SMs";
  EXPECT_FLOAT_EQ(graph->work.run_us, static_cast<float>(TimesOf(kDevice, *graph)[0].predicted_us));
  EXPECT_LT(graph->work.m, 66u);
  EXPECT_FLOAT_EQ(static_cast<float>(policies::SoloUs(kDevice, graph->work)), graph->work.run_us);
}

// A client decides how many kernels there are, not how much of them is told.
TEST(ProgramTimesTest, PartsAreBounded) {
  Program program;
  for (uint32_t i = 0; i < 1000; ++i) {
    Op op;
    op.kind = CONCERT_OP_GEMM;
    op.work = {.m = 16, .n = 1024, .k = 64 * (i + 1), .batch = 1};
    program.ops.push_back(op);
  }
  const EngineTimes times = TimesOf(kDevice, program)[0];
  ASSERT_LE(times.parts.size(), kMaxProgramParts);
  EXPECT_EQ(times.parts.back().what, "others");
  EXPECT_NEAR(SumOf(times), times.predicted_us, 1e-6 * times.predicted_us);
}

}  // namespace
}  // namespace concert::kernels
