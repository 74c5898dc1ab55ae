// What a run of a program is told when the step kernel is launched for it.
#include "kernels/step/step_launcher.h"

#include <gtest/gtest.h>

#include <memory>

#include "kernels/program/program_cuda.h"
#include "tests/unit/kernels/fake_cuda.h"
#include "tests/unit/kernels/step_recorder.h"

namespace concert::test {
namespace {

using kernels::Address;
using kernels::ProgramEngine;
using kernels::cuda::CudaProgram;
using kernels::cuda::StepArgs;

// Where runs bring their bindings: of two layers, the residual stream and the result.
constexpr Address kGiven = 0x8'0000'0000, kGivenApart = 0x10000;

class StepLauncherTest : public testing::Test {
 protected:
  StepLauncherTest() : program_(kernels::LayersOfLongRows()), context_(fake_.Context()) {
    fake_.offers[0] = {FakeAlgo{}};
    fake_.AddSkinny();
    fake_.AddStep();
    EXPECT_TRUE(
        sms_.Open(fake_.api().driver, 0,
                  {.sm_count = 132, .engine = ProgramEngine::kStep, .low_class_percent = 25})
            .ok());
    context_.step_sms = &sms_, context_.step_report = &report_;
    constexpr Address kBehind = 0x7'0000'0000;
    program_->workspace = {kBehind, kBehind + CudaProgram::WorkspaceBytes(context_, *program_)};
    auto made = CudaProgram::Make(context_, *program_);
    EXPECT_TRUE(made.ok()) << made.status();
    made_ = *std::move(made);
    fake_.set.clear(), fake_.uploaded.clear();
  }

  void Launch(Address given) {
    kernels::Op op;
    op.kind = CONCERT_OP_PROGRAM;
    op.session = 3, op.queue = 5, op.ticket = 7;
    op.program.program = program_.get();
    op.program.bindings[0] = given, op.program.bindings[1] = given + kGivenApart;
    sms_.See({.client = 3, .program = true});
    EXPECT_TRUE(made_->Launch(context_, op).ok());
  }
  // What the run's launch of the step kernel is told.
  StepArgs Run(Address given) {
    const size_t launched = fake_.steps.size();
    Launch(given);
    EXPECT_EQ(fake_.steps.size(), launched + 1) << "the graph went instead";
    EXPECT_EQ(fake_.step_blocks.back(), 132u) << "it is alone";
    return fake_.steps.back();
  }

  FakeCuda fake_;
  kernels::cuda::StepSms sms_;
  kernels::cuda::StepReport report_ = {};
  const std::unique_ptr<kernels::Program> program_;
  kernels::cuda::LaunchContext context_;
  std::unique_ptr<CudaProgram> made_;
};

TEST_F(StepLauncherTest, RunsTakeTheExchangeInTurns) {
  const StepArgs first = Run(kGiven), second = Run(kGiven), third = Run(kGiven);
  EXPECT_EQ(second.epoch, first.epoch + 1);
  EXPECT_EQ(third.epoch, second.epoch + 1);
  EXPECT_GT(first.emptied_bytes, 0u);
  EXPECT_NE(first.exchange, second.exchange);
  EXPECT_EQ(first.exchange, third.exchange);
  // While one is used, the other is emptied.
  EXPECT_EQ(second.emptied - first.emptied, first.exchange - second.exchange);
  // Sums of attention carry tags that no other run has.
  EXPECT_EQ(second.first_tag, first.first_tag + 2) << "of two layers";
  EXPECT_EQ(first.session, 3u);
  EXPECT_EQ(first.queue, 5u);
  EXPECT_EQ(first.ticket, 7u);
  EXPECT_TRUE(fake_.set.empty() && fake_.uploaded.empty()) << "a launch is all that a run takes";
}

TEST_F(StepLauncherTest, BindingsAreUsedWhereTheyAreGivenIfTheyCanBe) {
  const StepArgs direct = Run(kGiven);
  EXPECT_EQ(direct.first_stage, kernels::kTablesStage + 1);
  for (size_t i = 0; i < program_->bindings.size(); ++i) {
    EXPECT_EQ(direct.moves[i + 1], kGiven + i * kGivenApart - program_->bindings[i].staged);
  }
  const StepArgs copied = Run(kGiven + 2);  // no multiple of 16
  EXPECT_EQ(copied.first_stage, kernels::kTablesStage);
  EXPECT_EQ(copied.last_stage, direct.last_stage + 1) << "and copied out";
  for (const Address move : copied.moves) EXPECT_EQ(move, 0u);
  EXPECT_EQ(copied.bindings[1], kGiven + 2 + kGivenApart);
}

// A run that hung is no reason to try again.
TEST_F(StepLauncherTest, ProgramsOfWhichARunStalledAreGraphs) {
  program_->has_stalled = true;
  Launch(kGiven);
  EXPECT_TRUE(fake_.steps.empty());
  EXPECT_FALSE(fake_.enqueued.empty());
}

}  // namespace
}  // namespace concert::test
