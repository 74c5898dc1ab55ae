// What a program's launches are told to use of the memory behind its arena.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/program/program_cuda.h"
#include "kernels/program/program_graph.h"
#include "tests/unit/kernels/fake_cuda.h"
#include "tests/unit/kernels/step_recorder.h"

namespace concert::test {
namespace {

using kernels::Address;
using kernels::ByteRange;
using kernels::NormedAhead;
using kernels::Program;
using kernels::cuda::CudaProgram;
using kernels::cuda::ProgramGraph;

constexpr Address kWorkspace = 0x7'0000'0000;

std::vector<ByteRange> RangesOf(const NormedAhead& normed, uint64_t columns) {
  if (normed.rows == 0) return {};
  const uint64_t rows_bytes = kernels::kMaxSkinnyRows * columns * 2;
  const uint64_t squares_bytes = kernels::kMaxSkinnyRows * normed.tiles * sizeof(float);
  return {{normed.rows, normed.rows + rows_bytes},
          {normed.squares, normed.squares + squares_bytes}};
}

// By norms that are half done, each part once.
std::vector<ByteRange> HandedOver(const FakeCuda& fake) {
  std::vector<ByteRange> ranges;
  for (const kernels::cuda::SkinnyArgs& args : fake.skinny) {
    const kernels::SkinnyGemm& skinny = args.skinny;
    std::vector<ByteRange> its = RangesOf(skinny.a_normed, skinny.gemm.k);
    for (const ByteRange& range : RangesOf(skinny.d_normed, skinny.gemm.n)) its.push_back(range);
    for (const ByteRange& range : its) {
      const bool known = std::any_of(ranges.begin(), ranges.end(), [&](const ByteRange& other) {
        return other.begin == range.begin && other.end == range.end;
      });
      if (!known) ranges.push_back(range);
    }
  }
  return ranges;
}

// By sums of attention's chunks.
std::vector<ByteRange> Summed(const FakeCuda& fake) {
  std::vector<ByteRange> ranges;
  for (const kernels::cuda::AttentionKernelArgs& args : fake.attention) {
    const uint64_t states = uint64_t{args.op.rows} * args.op.q_heads * args.partials.chunks;
    const auto sums_at = reinterpret_cast<Address>(args.partials.sums);
    const auto states_at = reinterpret_cast<Address>(args.partials.states);
    ranges.push_back({sums_at, sums_at + states * args.op.head_dim * sizeof(float)});
    ranges.push_back({states_at, states_at + states * sizeof(kernels::cuda::SoftmaxState)});
  }
  return ranges;
}

class ProgramWorkspaceTest : public testing::Test {
 protected:
  ProgramWorkspaceTest() {
    fake_.offers[0] = {FakeAlgo{}};
    fake_.AddSkinny();
  }

  FakeCuda fake_;
};

TEST_F(ProgramWorkspaceTest, HasDisjointPartsForAllThatIsLaunched) {
  const std::unique_ptr<Program> program = kernels::LayersOfLongRows();
  kernels::cuda::LaunchContext context = fake_.Context();
  const uint64_t bytes = ProgramGraph::WorkspaceBytes(context, *program);
  context.workspace = kWorkspace, context.workspace_bytes = bytes;
  ASSERT_TRUE(ProgramGraph::Capture(context, *program).ok());
  const std::vector<ByteRange> sums = Summed(fake_), handed_over = HandedOver(fake_);
  ASSERT_EQ(sums.size(), 4u) << "of two layers";
  ASSERT_EQ(handed_over.size(), 2u) << "one place";
  EXPECT_FALSE(handed_over[0].Overlaps(handed_over[1]));
  for (const ByteRange& range : handed_over) {
    EXPECT_GE(range.begin, kWorkspace);
    EXPECT_LE(range.end, kWorkspace + bytes);
    for (const ByteRange& other : sums) EXPECT_FALSE(range.Overlaps(other));
  }
  for (const ByteRange& range : sums) {
    EXPECT_GE(range.begin, kWorkspace);
    EXPECT_LE(range.end, kWorkspace + bytes);
  }
  // Wherever the program lies.
  EXPECT_EQ(ProgramGraph::WorkspaceBytes(context, *kernels::LayersOfLongRows(0x9'0000'0000)),
            bytes);
}

// The step kernel's part is the end, where the graph has nothing.
TEST_F(ProgramWorkspaceTest, HasAPartForTheStepKernel) {
  fake_.AddStep();
  const std::unique_ptr<Program> program = kernels::LayersOfLongRows();
  kernels::cuda::LaunchContext context = fake_.Context();
  kernels::cuda::StepSms sms;
  context.step_sms = &sms;
  const uint64_t bytes = CudaProgram::WorkspaceBytes(context, *program);
  program->workspace = {kWorkspace, kWorkspace + bytes};
  const auto made = CudaProgram::Make(context, *program);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(program->why_no_step, "");
  EXPECT_FALSE(program->stages.empty());
  const Address of_step = kWorkspace + ProgramGraph::WorkspaceBytes(context, *program);
  ASSERT_EQ(fake_.set.size(), 2u) << "all of it, and then the exchange";
  EXPECT_EQ(fake_.set[0].begin, of_step);
  EXPECT_EQ(fake_.set[0].end, program->workspace.end);
  std::vector<ByteRange> placed = fake_.uploaded;  // stages, their bindings, waits and maps
  ASSERT_EQ(placed.size(), 4u);
  placed.push_back(fake_.set[1]);
  for (size_t i = 0; i < placed.size(); ++i) {
    EXPECT_GE(placed[i].begin, of_step) << i;
    EXPECT_LE(placed[i].end, program->workspace.end) << i;
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(placed[i].Overlaps(placed[j])) << i << ", " << j;
  }
  for (const std::vector<ByteRange>& ranges : {Summed(fake_), HandedOver(fake_)}) {
    for (const ByteRange& range : ranges) EXPECT_LE(range.end, of_step);
  }
}

TEST_F(ProgramWorkspaceTest, OfAnotherSizeIsRefused) {
  const std::unique_ptr<Program> program = kernels::LayersOfLongRows();
  const kernels::cuda::LaunchContext context = fake_.Context();
  const uint64_t bytes = CudaProgram::WorkspaceBytes(context, *program);
  program->workspace = {kWorkspace, kWorkspace + bytes};
  EXPECT_TRUE(CudaProgram::Make(context, *program).ok());
  EXPECT_EQ(program->why_no_step, "this GPU has no step kernel");
  program->workspace.end -= kernels::kArenaAlignment;
  EXPECT_EQ(CudaProgram::Make(context, *program).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace concert::test
