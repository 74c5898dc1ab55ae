// How a launch finds its kernel: the cache, tuned and explicit variants, budgets, and what happens
// when what tuning found is no longer there.
#include "kernels/gemm/gemm_planner.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/gemm/gemm_op.h"
#include "kernels/gemm/gemm_variants.h"
#include "tests/unit/kernels/fake_cuda.h"

namespace concert::test {
namespace {

using kernels::Activation;
using kernels::Op;
using kernels::cuda::GemmHeuristic;
using kernels::cuda::LaunchContext;
using policies::Degree;
using policies::Dtype;
using policies::Form;
using policies::Problem;
using policies::TunedTable;
using policies::Variant;

constexpr uint32_t kM = 64, kN = 4096, kK = 1024;

Op Gemm() {
  Op op;
  op.kind = CONCERT_OP_GEMM;
  op.gemm = {};
  op.gemm.m = kM, op.gemm.n = kN, op.gemm.k = kK, op.gemm.batch = 1;
  op.gemm.a = 0x10000, op.gemm.w = 0x20000, op.gemm.d = 0x30000;
  op.gemm.lda = op.gemm.ldw = kK;
  op.gemm.ldd = kN;
  op.gemm.alpha = 1;
  op.gemm.dtype = op.gemm.d_dtype = Dtype::kBf16;
  return op;
}

Op Fp8Gemm() {
  Op op = Gemm();
  op.gemm.dtype = Dtype::kFp8E4m3;
  op.gemm.a_scales = 0x40000, op.gemm.w_scales = 0x50000;
  return op;
}

class GemmPlannerTest : public testing::Test {
 protected:
  // The algorithm that a launch of `op` ends with; 0: concert's own kernel.
  int Launch(LaunchContext context, const Op& op = Gemm()) {
    const size_t before = fake_.launches.size();
    const int kernels_before = fake_.kernels_launched;
    EXPECT_TRUE(kernels::cuda::LaunchGemm(context, op).ok());
    if (fake_.launches.size() == before) {
      EXPECT_EQ(fake_.kernels_launched, kernels_before + 1);
      return 0;
    }
    EXPECT_EQ(fake_.launches.size(), before + 1);
    EXPECT_EQ(fake_.launches.back().stream, FakeCuda::StreamOf(0));
    return fake_.launches.back().algo_id;
  }

  std::vector<Variant> List(int sm_budget) {
    const GemmHeuristic heuristic(fake_.api().cublaslt, nullptr, FakeCuda::kWorkspaceBytes);
    return ListVariants(fake_.api().cublaslt, heuristic, 132, {.m = kM, .n = kN, .k = kK},
                        sm_budget);
  }

  static policies::TunedRow Row(const Variant& variant, int sm_budget = 0,
                                Degree degree = Degree::kSolo, Form form = Form::kSingle) {
    policies::TunedRow row;
    row.key = {.problem = {.m = kM, .n = kN, .k = kK},
               .sm_budget = static_cast<uint16_t>(sm_budget),
               .degree = degree,
               .form = form};
    row.variant = variant;
    return row;
  }

  FakeCuda fake_;
};

TEST_F(GemmPlannerTest, AsksTheHeuristicOncePerProblem) {
  fake_.offers[0] = {{.id = 1}, {.id = 2}};
  const LaunchContext context = fake_.Context();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Launch(context), 1);
  EXPECT_EQ(fake_.heuristic_calls, 1);
  EXPECT_EQ(fake_.cache().misses(), 1u);
  EXPECT_EQ(fake_.cache().hits(), 4u);
  EXPECT_EQ(fake_.cache().stale(), 0u);
  EXPECT_TRUE(fake_.captured.empty()) << "no budget, no grid to verify";
}

TEST_F(GemmPlannerTest, TunedVariantIsTakenForItsDegreeAndForm) {
  fake_.offers[0] = {{.id = 1}, {.id = 2}, {.id = 3}};
  const std::vector<Variant> variants = List(0);
  const TunedTable table({Row(variants[1]), Row(variants[2], 0, Degree::kEight, Form::kStreams)});
  LaunchContext context = fake_.Context();
  context.tuned = &table;
  EXPECT_EQ(Launch(context), 2);
  context.form = Form::kStreams, context.degree = Degree::kEight;
  EXPECT_EQ(Launch(context), 3);
  context.degree = Degree::kTwo;
  EXPECT_EQ(Launch(context), 1) << "never tuned: the default";
  const int calls = fake_.heuristic_calls;
  context.degree = Degree::kEight;
  EXPECT_EQ(Launch(context), 3);
  EXPECT_EQ(fake_.heuristic_calls, calls) << "resolved once";
  EXPECT_EQ(fake_.cache().stale(), 0u);
}

TEST_F(GemmPlannerTest, VariantIsSoughtAtItsOwnSmTarget) {
  fake_.offers[0] = {{.id = 1}};
  fake_.offers[66] = {{.id = 2}, {.id = 3}};
  const std::vector<Variant> variants = List(66);
  LaunchContext context = fake_.Context();
  context.variant = &variants[1];
  EXPECT_EQ(Launch(context), 3);
  EXPECT_EQ(fake_.launches.back().sm_target, 66);
  EXPECT_EQ(fake_.cache().stale(), 0u);
}

TEST_F(GemmPlannerTest, ExplicitVariantGoesBeforeTheTable) {
  fake_.offers[0] = {{.id = 1}, {.id = 2}, {.id = 3}};
  const std::vector<Variant> variants = List(0);
  const TunedTable table({Row(variants[1])});
  LaunchContext context = fake_.Context();
  context.tuned = &table;
  context.variant = &variants[2];
  EXPECT_EQ(Launch(context), 3);
  const Variant none;
  context.variant = &none;
  EXPECT_EQ(Launch(context), 1) << "the default can be tuned, too";
}

TEST_F(GemmPlannerTest, ReplacedTableCounts) {
  fake_.offers[0] = {{.id = 1}, {.id = 2}, {.id = 3}};
  const std::vector<Variant> variants = List(0);
  const TunedTable before({Row(variants[1])}), after({Row(variants[2])});
  LaunchContext context = fake_.Context();
  context.tuned = &before;
  EXPECT_EQ(Launch(context), 2);
  context.tuned = &after;
  EXPECT_EQ(Launch(context), 3);
}

TEST_F(GemmPlannerTest, VariantNoLongerOfferedIsStale) {
  fake_.offers[0] = {{.id = 1}, {.id = 2}};
  const TunedTable table({Row(List(0)[1])});
  fake_.offers[0] = {{.id = 5}, {.id = 6}};
  LaunchContext context = fake_.Context();
  context.tuned = &table;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Launch(context), 5);
  EXPECT_EQ(fake_.cache().stale(), 1u) << "counted once, when planned";
}

TEST_F(GemmPlannerTest, VariantThatTheLibraryRefusesForThisOpIsStale) {
  fake_.offers[0] = {{.id = 1}, {.id = 2}};
  const TunedTable table({Row(List(0)[1])});
  LaunchContext context = fake_.Context();
  context.tuned = &table;
  fake_.offers[0] = {{.id = 1}, {.id = 2, .check = CUBLAS_STATUS_NOT_SUPPORTED}};
  EXPECT_EQ(Launch(context), 1);
  EXPECT_EQ(fake_.cache().stale(), 1u);
}

// Rows come from a file: whatever they say, something that works is launched.
TEST_F(GemmPlannerTest, NonsenseRowsAreHarmless) {
  fake_.offers[0] = {{.id = 1}};
  Variant nonsense;
  std::memset(static_cast<void*>(&nonsense), 0xff, sizeof(nonsense));
  Variant no_library = List(0)[0];
  no_library.source = Variant::Source::kGroup;
  Variant half = List(0)[0];
  half.algo_id = 12345;
  for (Variant variant : {nonsense, no_library, half}) {
    const TunedTable table({Row(variant)});
    LaunchContext context = fake_.Context();
    context.tuned = &table;
    EXPECT_EQ(Launch(context), 1);
  }
}

TEST_F(GemmPlannerTest, Tf32IsNotTuned) {
  fake_.offers[0] = {{.id = 1}, {.id = 2}};
  policies::TunedRow row = Row(List(0)[1]);
  row.key.problem.dtype = row.variant.dtype = Dtype::kFp32;
  const TunedTable table({row});
  LaunchContext context = fake_.Context();
  context.tuned = &table;
  Op op = Gemm();
  op.gemm.dtype = op.gemm.d_dtype = Dtype::kFp32;
  op.gemm.lda = op.gemm.ldw = kK;
  EXPECT_EQ(Launch(context, op), 2);
  op.gemm.allow_tf32 = true;
  EXPECT_EQ(Launch(context, op), 1);
  EXPECT_EQ(fake_.cache().stale(), 0u);
}

TEST_F(GemmPlannerTest, BudgetTakesTheFirstGridThatKeepsToIt) {
  fake_.offers[64] = {{.id = 1, .blocks = 132}, {.id = 2, .blocks = 65}, {.id = 3, .blocks = 64}};
  LaunchContext context = fake_.Context();
  context.sm_budget = 64;
  EXPECT_EQ(Launch(context), 3);
  EXPECT_EQ(fake_.captured.size(), 3u);
  EXPECT_EQ(fake_.captured.front().stream, FakeCuda::ProbeStream());
  EXPECT_EQ(fake_.live_graphs, 0);
  EXPECT_EQ(Launch(context), 3);
  EXPECT_EQ(fake_.captured.size(), 3u) << "verified once";
}

TEST_F(GemmPlannerTest, BudgetThatNoGridKeepsToLeavesTheFirst) {
  fake_.offers[8] = {{.id = 1, .blocks = 132}, {.id = 2, .blocks = 65}};
  LaunchContext context = fake_.Context();
  context.sm_budget = 8;
  EXPECT_EQ(Launch(context), 1);
}

TEST_F(GemmPlannerTest, UnknownGridIsTaken) {
  fake_.offers[8] = {{.id = 1, .blocks = 132}, {.id = 2, .blocks = 8}};
  fake_.captures_work = false;
  LaunchContext context = fake_.Context();
  context.sm_budget = 8;
  EXPECT_EQ(Launch(context), 1);
  context.probe_stream = nullptr;
  EXPECT_EQ(Launch(context), 1);
}

TEST_F(GemmPlannerTest, VerifiedBlocksAreInTheEntry) {
  fake_.offers[64] = {{.id = 1, .blocks = 60}};
  LaunchContext context = fake_.Context();
  context.sm_budget = 64;
  EXPECT_EQ(Launch(context), 1);
  const auto key = [&](int sm_budget) {
    return kernels::cuda::GemmKey::Of(Gemm().gemm, sm_budget, context.workspace_bytes);
  };
  const auto* entry = fake_.cache().Peek(key(64));
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->blocks, 60u);
  EXPECT_EQ(fake_.cache().Peek(key(63)), nullptr);
}

TEST_F(GemmPlannerTest, AnotherWorkspaceHasAnotherAlgorithm) {
  fake_.offers[0] = {{.id = 1, .workspace = test::FakeCuda::kWorkspaceBytes}};
  LaunchContext context = fake_.Context();
  EXPECT_EQ(Launch(context), 1);
  fake_.offers[0] = {{.id = 2}};
  context.workspace_bytes /= 2;
  EXPECT_EQ(Launch(context), 2);
}

TEST_F(GemmPlannerTest, TunedVariantMustKeepToTheBudget) {
  fake_.offers[64] = {{.id = 1, .blocks = 132}, {.id = 2, .blocks = 100}, {.id = 3, .blocks = 64}};
  fake_.offers[0] = {{.id = 9, .blocks = 30}};
  const TunedTable grid({Row(List(64)[1], 64)});
  LaunchContext context = fake_.Context();
  context.sm_budget = 64;
  context.tuned = &grid;
  EXPECT_EQ(Launch(context), 3) << "the next behind it that does";
  EXPECT_EQ(fake_.cache().stale(), 0u);
  // One for all SMs is none for 64.
  const TunedTable target({Row(List(0)[0], 64)});
  context.tuned = &target;
  EXPECT_EQ(Launch(context), 3);
  EXPECT_EQ(fake_.cache().stale(), 1u);
}

TEST_F(GemmPlannerTest, EpilogueThatCannotBeFusedKeepsTheVariant) {
  fake_.offers[0] = {{.id = 1}, {.id = 2}};
  const TunedTable table({Row(List(0)[1])});
  LaunchContext context = fake_.Context();
  context.tuned = &table;
  Op op = Gemm();
  op.gemm.activation = Activation::kSilu;
  EXPECT_EQ(Launch(context, op), 2);
  EXPECT_EQ(fake_.kernels_launched, 1) << "the epilogue kernel behind it";
  op.gemm.activation = Activation::kRelu;  // the fake fuses none
  EXPECT_EQ(Launch(context, op), 2);
  EXPECT_EQ(fake_.cache().stale(), 0u);
}

// One plan serves all scales of a kind.
TEST_F(GemmPlannerTest, Fp8LaunchesReadTheirOwnScales) {
  fake_.offers[0] = {{.id = 1}};
  Op op = Fp8Gemm();
  EXPECT_EQ(Launch(fake_.Context(), op), 1);
  EXPECT_EQ(fake_.question.w_type, CUDA_R_8F_E4M3);
  EXPECT_EQ(fake_.question.a_type, CUDA_R_8F_E4M3);
  EXPECT_EQ(fake_.question.c_type, CUDA_R_16BF);
  EXPECT_EQ(fake_.question.d_type, CUDA_R_16BF);
  EXPECT_EQ(fake_.question.w_scales, op.gemm.w_scales);
  EXPECT_EQ(fake_.question.a_scales, op.gemm.a_scales);
  EXPECT_EQ(fake_.question.w_scale_mode, 0);
  EXPECT_EQ(fake_.question.a_scale_mode, 0);
  op.gemm.a_scales += 0x100, op.gemm.w_scales += 0x200;
  EXPECT_EQ(Launch(fake_.Context(), op), 1);
  EXPECT_EQ(fake_.launches.back().w_scales, op.gemm.w_scales);
  EXPECT_EQ(fake_.launches.back().a_scales, op.gemm.a_scales);
  EXPECT_EQ(fake_.heuristic_calls, 1);
}

TEST_F(GemmPlannerTest, Fp8PlansEachKindOfScales) {
  fake_.offers[0] = {{.id = 1}};
  Op op = Fp8Gemm();
  EXPECT_EQ(Launch(fake_.Context(), op), 1);
  op.gemm.a_scales_per_row = op.gemm.w_scales_per_row = true;
  EXPECT_EQ(Launch(fake_.Context(), op), 1);
  EXPECT_EQ(fake_.question.w_scale_mode, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
  EXPECT_EQ(fake_.question.a_scale_mode, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
  op = Fp8Gemm();
  op.gemm.a_scales = 0;
  EXPECT_EQ(Launch(fake_.Context(), op), 1);
  EXPECT_EQ(fake_.launches.back().a_scales, 0u);
  op = Fp8Gemm();
  op.gemm.d_dtype = Dtype::kFp16;
  EXPECT_EQ(Launch(fake_.Context(), op), 1);
  EXPECT_EQ(fake_.question.d_type, CUDA_R_16F);
  EXPECT_EQ(fake_.heuristic_calls, 4);
}

TEST_F(GemmPlannerTest, Fp8ThatTheLibraryDoesNotTakeRunsConcertsOwnKernel) {
  fake_.offers[0] = {{.id = 1}};
  const auto launch = [this](auto change) {
    Op op = Fp8Gemm();
    change(op.gemm);
    return Launch(fake_.Context(), op);
  };
  using Args = kernels::GemmArgs;
  EXPECT_EQ(launch([](Args& g) { g.k -= 8; }), 0);
  EXPECT_EQ(launch([](Args& g) { g.lda += 8; }), 0);
  EXPECT_EQ(launch([](Args& g) { g.ldd += 4; }), 0);
  EXPECT_EQ(launch([](Args& g) { g.w += 8; }), 0);
  EXPECT_EQ(launch([](Args& g) { g.a_scales_per_row = true; }), 0);
  const auto per_row = [](Args& g) { g.a_scales_per_row = g.w_scales_per_row = true; };
  EXPECT_EQ(launch([&](Args& g) { per_row(g), g.batch = 2; }), 0);
  EXPECT_EQ(launch([&](Args& g) { per_row(g), g.w_scales += 4; }), 0);
  EXPECT_EQ(fake_.heuristic_calls, 0);
}

TEST_F(GemmPlannerTest, Fp8IsTunedWithAllKindsOfScales) {
  fake_.offers[0] = {{.id = 1}, {.id = 2}};
  policies::TunedRow row = Row(List(0)[1]);
  row.key.problem.dtype = row.variant.dtype = Dtype::kFp8E4m3;
  const TunedTable table({row});
  LaunchContext context = fake_.Context();
  context.tuned = &table;
  Op op = Fp8Gemm();
  EXPECT_EQ(Launch(context, op), 2);
  op.gemm.a_scales_per_row = op.gemm.w_scales_per_row = true;
  EXPECT_EQ(Launch(context, op), 2);
  EXPECT_EQ(fake_.cache().stale(), 0u);
}

TEST_F(GemmPlannerTest, NothingOfferedOrRefusedRunsConcertsOwnKernel) {
  EXPECT_EQ(Launch(fake_.Context()), 0);
  fake_.offers[0] = {{.id = 1}};
  Op op = Gemm();
  op.gemm.m = 65;
  fake_.matmul_status = CUBLAS_STATUS_NOT_SUPPORTED;
  EXPECT_EQ(Launch(fake_.Context(), op), 0);
}

}  // namespace
}  // namespace concert::test
