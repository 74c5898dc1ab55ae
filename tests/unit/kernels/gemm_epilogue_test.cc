// How GEMMs are launched that no epilogue of cuBLASLt's ends: its sums wait in the workspace, a
// band of rows at a time, for an epilogue kernel.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/gemm/gemm_op.h"
#include "tests/unit/kernels/fake_cuda.h"

namespace concert::test {
namespace {

using kernels::Activation;
using kernels::GemmArgs;
using kernels::Op;
using kernels::cuda::LaunchContext;
using kernels::cuda::SumsArgs;
using policies::Dtype;

constexpr uint64_t kWorkspace = 0x7000000;
// Of the workspace, for sums.
constexpr uint64_t kSums = FakeCuda::kWorkspaceBytes / 4 * 3;

Op ResidualGemm(uint32_t m, uint32_t n) {
  Op op;
  op.kind = CONCERT_OP_GEMM;
  GemmArgs& gemm = op.gemm;
  gemm = {};
  gemm.m = m, gemm.n = n, gemm.k = 64, gemm.batch = 1;
  gemm.a = 0x10000, gemm.w = 0x20000, gemm.c = 0x30000, gemm.d = 0x40000, gemm.bias = 0x50000;
  gemm.lda = 72, gemm.ldw = 64, gemm.ldc = n + 8, gemm.ldd = n + 16;
  gemm.alpha = 0.5f, gemm.beta = 2;
  gemm.dtype = gemm.d_dtype = Dtype::kBf16;
  gemm.activation = Activation::kSilu;
  gemm.residual = true;
  return op;
}

class GemmEpilogueTest : public testing::Test {
 protected:
  void SetUp() override { fake_.offers[0] = {{.id = 1}}; }

  LaunchContext Context() {
    LaunchContext context = fake_.Context();
    context.workspace = kWorkspace;
    return context;
  }
  void Launch(const Op& op) {
    LaunchContext context = Context();
    EXPECT_TRUE(kernels::cuda::LaunchGemm(context, op).ok());
  }
  // The bands are what `op` is, one below the other, and each reads what the library has left it.
  void CheckBands(const Op& op, std::initializer_list<uint32_t> rows) {
    ASSERT_EQ(fake_.launches.size(), rows.size());
    ASSERT_EQ(fake_.epilogues_of_sums.size(), rows.size());
    const GemmArgs& all = op.gemm;
    const uint64_t in = DtypeBytes(all.dtype), out = DtypeBytes(all.d_dtype);
    uint64_t first = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      SCOPED_TRACE(i);
      const FakeLaunch& library = fake_.launches[i];
      EXPECT_EQ(library.a, all.a + first * all.lda * in);
      EXPECT_EQ(library.w, all.w);
      EXPECT_EQ(library.d, kWorkspace);
      EXPECT_EQ(library.alpha, all.alpha);
      EXPECT_EQ(library.beta, 0);
      EXPECT_EQ(library.workspace, kWorkspace + kSums);
      EXPECT_EQ(library.workspace_bytes, FakeCuda::kWorkspaceBytes - kSums);
      const SumsArgs& epilogue = fake_.epilogues_of_sums[i];
      EXPECT_EQ(reinterpret_cast<uint64_t>(epilogue.sums), kWorkspace);
      const GemmArgs& band = epilogue.gemm;
      EXPECT_EQ(band.m, rows.begin()[i]);
      EXPECT_EQ(band.n, all.n);
      EXPECT_LE(uint64_t{band.m} * band.n * sizeof(float), kSums);
      EXPECT_EQ(band.d, all.d + first * all.ldd * out);
      EXPECT_EQ(band.c, all.c + first * all.ldc * out);
      EXPECT_EQ(band.bias, all.bias);
      EXPECT_EQ(band.alpha, 1) << "the library has multiplied by it";
      EXPECT_EQ(band.beta, all.beta);
      EXPECT_EQ(band.activation, all.activation);
      EXPECT_EQ(band.residual, all.residual);
      EXPECT_EQ(band.gated, all.gated);
      EXPECT_EQ(band.interleaved, all.interleaved);
      first += band.m;
    }
    EXPECT_EQ(first, all.m);
    EXPECT_TRUE(fake_.fallbacks.empty());
  }

  FakeCuda fake_;
};

TEST_F(GemmEpilogueTest, SumsThatFitAreOneBand) {
  const Op op = ResidualGemm(48, 1024);
  Launch(op);
  CheckBands(op, {48});
  EXPECT_EQ(fake_.question.w_type, CUDA_R_16BF);
  EXPECT_EQ(fake_.question.d_type, CUDA_R_32F) << "nothing is rounded in between";
  EXPECT_EQ(fake_.question.c_type, CUDA_R_32F);
}

TEST_F(GemmEpilogueTest, MoreSumsAreBandsOfWholeTiles) {
  const Op op = ResidualGemm(700, 1024);  // 192 rows would fit
  Launch(op);
  CheckBands(op, {128, 128, 128, 128, 128, 60});
  EXPECT_EQ(fake_.heuristic_calls, 2) << "one for all but the last";
}

TEST_F(GemmEpilogueTest, LongRowsAreBandsOfWhatATileIsMadeOf) {
  const Op op = ResidualGemm(150, 2048);  // 96 rows would fit
  Launch(op);
  CheckBands(op, {64, 64, 22});
}

// What the library is asked for with all of the workspace may want more than it has here.
TEST_F(GemmEpilogueTest, PlansAreTheirOwn) {
  Op op = ResidualGemm(48, 1024);
  op.gemm.dtype = op.gemm.d_dtype = Dtype::kFp32;
  op.gemm.lda = 64, op.gemm.ldd = 1024, op.gemm.d = kWorkspace;
  fake_.offers[0] = {{.id = 1, .workspace = FakeCuda::kWorkspaceBytes}};
  Op plain = op;
  plain.gemm.residual = false, plain.gemm.activation = Activation::kNone;
  plain.gemm.bias = 0, plain.gemm.beta = 0;
  Launch(plain);
  EXPECT_EQ(fake_.launches.size(), 1u);
  Launch(op);
  EXPECT_EQ(fake_.launches.size(), 1u) << "what it has planned does not fit beside the sums";
  EXPECT_EQ(fake_.fallbacks.size(), 1u);
  Launch(plain);
  EXPECT_EQ(fake_.launches.size(), 2u) << "which is nothing to plans of before";
}

TEST_F(GemmEpilogueTest, WhatHasNoRoomIsConcertsOwnKernels) {
  const auto launch = [this](auto change) {
    Op op = ResidualGemm(48, 1024);
    change(op.gemm);
    const size_t before = fake_.fallbacks.size();
    Launch(op);
    EXPECT_EQ(fake_.fallbacks.size(), before + 1);
    const GemmArgs& all = fake_.fallbacks.back();
    EXPECT_TRUE(all.m == op.gemm.m && all.d == op.gemm.d && all.residual);
    EXPECT_TRUE(fake_.launches.empty());
  };
  launch([](GemmArgs& g) { g.batch = 2; });
  launch([](GemmArgs& g) { g.m = 1 << 24; });                       // too many bands
  launch([](GemmArgs& g) { g.n = 1 << 24, g.ldc = g.ldd = g.n; });  // not one row
}

TEST_F(GemmEpilogueTest, WithoutAWorkspaceItIsConcertsOwnKernel) {
  LaunchContext context = Context();
  context.workspace = context.workspace_bytes = 0;
  EXPECT_TRUE(kernels::cuda::LaunchGemm(context, ResidualGemm(48, 1024)).ok());
  EXPECT_EQ(fake_.fallbacks.size(), 1u);
}

TEST_F(GemmEpilogueTest, WhatTheLibraryRefusesIsConcertsOwnKernels) {
  fake_.offers[0] = {};
  Launch(ResidualGemm(48, 1024));
  EXPECT_EQ(fake_.fallbacks.size(), 1u);
  fake_.offers[0] = {{.id = 1}};
  fake_.matmul_status = CUBLAS_STATUS_NOT_SUPPORTED;
  Launch(ResidualGemm(49, 1024));
  EXPECT_EQ(fake_.fallbacks.size(), 2u);
  EXPECT_TRUE(fake_.epilogues_of_sums.empty());
}

TEST_F(GemmEpilogueTest, GatedProductsAreAsWideAsTheyAre) {
  Op op = ResidualGemm(200, 1024);
  op.gemm.residual = false, op.gemm.beta = 0, op.gemm.c = 0, op.gemm.ldc = 0;
  op.gemm.gated = op.gemm.interleaved = true;
  op.gemm.ldd = 520;
  Launch(op);
  CheckBands(op, {128, 72});
  op.gemm.batch = 2, op.gemm.stride_d = 520 * 200;
  Launch(op);
  ASSERT_EQ(fake_.fallbacks.size(), 1u);
  EXPECT_TRUE(fake_.fallbacks[0].gated && fake_.fallbacks[0].interleaved);
}

// Of others the epilogue does, so that sums of fp16 are not rounded before they are small enough.
TEST_F(GemmEpilogueTest, RowsAreScaledByTheEpilogue) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32}) {
    fake_.launches.clear();
    fake_.epilogues_of_sums.clear();
    Op op = ResidualGemm(200, 1024);
    op.gemm.residual = false;  // C is added before the activation
    op.gemm.dtype = op.gemm.d_dtype = dtype;
    op.gemm.a_scales = 0x60000, op.gemm.a_scales_per_row = true;
    Launch(op);
    CheckBands(op, {128, 72});
    EXPECT_EQ(fake_.launches[0].a_scales, 0u);
    EXPECT_EQ(fake_.question.d_type, CUDA_R_32F);
    EXPECT_EQ(fake_.epilogues_of_sums[0].gemm.a_scales, op.gemm.a_scales);
    EXPECT_EQ(fake_.epilogues_of_sums[1].gemm.a_scales, op.gemm.a_scales + 128 * sizeof(float));
    EXPECT_TRUE(fake_.epilogues_of_sums[1].gemm.a_scales_per_row);
  }
}

// Of fp8 the library multiplies by the scales.
TEST_F(GemmEpilogueTest, Fp8SumsAreScaledAlready) {
  Op op = ResidualGemm(200, 1024);
  op.gemm.dtype = Dtype::kFp8E4m3, op.gemm.lda = 64;
  op.gemm.a_scales = 0x60000, op.gemm.w_scales = 0x70000;
  op.gemm.a_scales_per_row = op.gemm.w_scales_per_row = true;
  Launch(op);
  CheckBands(op, {128, 72});
  EXPECT_EQ(fake_.launches[0].a_scales, op.gemm.a_scales);
  EXPECT_EQ(fake_.launches[1].a_scales, op.gemm.a_scales + 128 * sizeof(float));
  EXPECT_EQ(fake_.launches[1].w_scales, op.gemm.w_scales);
  EXPECT_EQ(fake_.epilogues_of_sums[1].gemm.a_scales | fake_.epilogues_of_sums[1].gemm.w_scales,
            0u);
}

}  // namespace
}  // namespace concert::test
