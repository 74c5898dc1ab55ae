#include "kernels/program/program_graph.h"

#include <gmock/gmock.h>

#include <memory>
#include <utility>

#include "kernels/program/program_args.h"
#include "tests/unit/kernels/fake_cuda.h"

namespace concert::test {
namespace {

using kernels::Op;
using kernels::Program;
using kernels::cuda::ProgramGraph;
using testing::ElementsAre;

constexpr uint64_t kArena = 0x80000000, kIn = 0x10000000, kOut = 0x20000000;

Op Gemm(uint32_t n) {
  Op op;
  op.kind = CONCERT_OP_GEMM;
  op.gemm.m = 64, op.gemm.n = n, op.gemm.k = 64, op.gemm.batch = 1;
  op.gemm.lda = op.gemm.ldw = 64, op.gemm.ldd = n;
  op.gemm.a = kArena, op.gemm.w = 0x30000000, op.gemm.d = kArena + 0x10000;
  op.gemm.alpha = 1;
  op.gemm.dtype = op.gemm.d_dtype = policies::Dtype::kBf16;
  return op;
}

class ProgramGraphTest : public testing::Test {
 protected:
  ProgramGraphTest() {
    fake_.offers[0] = {FakeAlgo{}};
    program_.bindings = {{kArena, 256, false}, {kArena + 256, 256, true}};
    program_.ops = {Gemm(64), Gemm(128)};
  }

  FakeCuda fake_;
  Program program_;
};

TEST_F(ProgramGraphTest, OpsAreCapturedAndNothingRuns) {
  kernels::cuda::LaunchContext context = fake_.Context();
  absl::StatusOr<std::unique_ptr<ProgramGraph>> graph = ProgramGraph::Capture(context, program_);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(fake_.captured.size(), 2u);
  EXPECT_TRUE(fake_.launches.empty());
  EXPECT_TRUE(fake_.enqueued.empty());
  EXPECT_EQ(fake_.live_executables, 1);
  graph->reset();
  EXPECT_EQ(fake_.live_graphs, 0);
  EXPECT_EQ(fake_.live_executables, 0);
}

TEST_F(ProgramGraphTest, ARunIsTheGraphBetweenCopiesOfItsBindings) {
  kernels::cuda::LaunchContext context = fake_.Context();
  const absl::StatusOr<std::unique_ptr<ProgramGraph>> graph =
      ProgramGraph::Capture(context, program_);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const kernels::ProgramArgs run = {.program = &program_, .bindings = {kIn, kOut}};
  ASSERT_TRUE((*graph)->Launch(context, run).ok());
  EXPECT_THAT(fake_.enqueued, ElementsAre(kArena, kArena + 256, 0, kOut));
}

TEST_F(ProgramGraphTest, EachRunCopiesItsOwnBindings) {
  kernels::cuda::LaunchContext context = fake_.Context();
  const absl::StatusOr<std::unique_ptr<ProgramGraph>> graph =
      ProgramGraph::Capture(context, program_);
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (const uint64_t out : {kOut, kOut + 4096}) {
    const kernels::ProgramArgs run = {.program = &program_, .bindings = {kIn, out}};
    ASSERT_TRUE((*graph)->Launch(context, run).ok());
  }
  EXPECT_THAT(fake_.enqueued,
              ElementsAre(kArena, kArena + 256, 0, kOut, kArena, kArena + 256, 0, kOut + 4096));
}

TEST_F(ProgramGraphTest, NothingIsCopiedWhereThereAreNoBindings) {
  program_.bindings.clear();
  kernels::cuda::LaunchContext context = fake_.Context();
  const absl::StatusOr<std::unique_ptr<ProgramGraph>> graph =
      ProgramGraph::Capture(context, program_);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(fake_.captured_copies.empty());
  ASSERT_TRUE((*graph)->Launch(context, {.program = &program_}).ok());
  EXPECT_THAT(fake_.enqueued, ElementsAre(0));
}

TEST_F(ProgramGraphTest, ARunWhoseBindingsCannotBeSetEnqueuesNothing) {
  kernels::cuda::LaunchContext context = fake_.Context();
  const absl::StatusOr<std::unique_ptr<ProgramGraph>> graph =
      ProgramGraph::Capture(context, program_);
  ASSERT_TRUE(graph.ok()) << graph.status();
  fake_.set_status = CUDA_ERROR_INVALID_VALUE;
  const kernels::ProgramArgs run = {.program = &program_, .bindings = {kIn, kOut}};
  EXPECT_FALSE((*graph)->Launch(context, run).ok());
  EXPECT_TRUE(fake_.enqueued.empty());
}

// Gates the first GEMM's results.
Op Gate() {
  Op op;
  op.kind = CONCERT_OP_GATED_ACTIVATION;
  op.gated_activation = {.rows = 64,
                         .columns = 32,
                         .x = kArena + 0x10000,
                         .out = kArena + 0x20000,
                         .x_stride = 64,
                         .out_stride = 32,
                         .dtype = policies::Dtype::kBf16,
                         .activation = kernels::Activation::kSilu,
                         .interleaved = false};
  return op;
}

TEST_F(ProgramGraphTest, RowsLineUpBehindKernelsAndNotBehindCopies) {
  Op gemm = Gemm(64), copy;
  gemm.gemm.m = 128;  // more rows than the skinny kernel takes
  copy.kind = CONCERT_OP_COPY;
  copy.copy.src = kArena + 0x20000, copy.copy.dst = kArena + 0x30000, copy.copy.bytes = 4096;
  program_.bindings.clear();
  program_.ops = {Gate(), gemm, Gate(), Gate(), copy, Gate()};
  fake_.AddSkinny();  // a GPU on which launches may overlap
  kernels::cuda::LaunchContext context = fake_.Context();
  const auto graph = ProgramGraph::Capture(context, program_);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(fake_.captured.size(), 1u);
  EXPECT_THAT(fake_.rows_line_up, ElementsAre(false, true, true, false));
}

TEST_F(ProgramGraphTest, WhatCannotBeLaunchedIsNamedAndTheCaptureEnds) {
  fake_.matmul_status = CUBLAS_STATUS_EXECUTION_FAILED;
  kernels::cuda::LaunchContext context = fake_.Context();
  const auto graph = ProgramGraph::Capture(context, program_);
  EXPECT_THAT(std::string(graph.status().message()), testing::StartsWith("op 0, gemm: "));
  EXPECT_EQ(fake_.capturing, nullptr);
  EXPECT_EQ(fake_.live_graphs, 0);
  EXPECT_EQ(fake_.live_executables, 0);
}

}  // namespace
}  // namespace concert::test
