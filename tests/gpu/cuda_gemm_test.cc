// GEMMs of the cuda device against a double-precision reference: dtypes, activations, C, bias,
// strides, batches, scales, tf32, SM budgets, and operands at element-aligned addresses only.
#include <string>

#include "tests/gpu/gemm_run.h"
#include "tests/support/seed.h"

namespace concert::test {
namespace {

std::vector<GemmCase> Cases() {
  return {
      {.name = "square"},
      {.name = "one row", .m = 1, .n = 256, .k = 128},
      {.name = "odd sizes", .m = 33, .n = 71, .k = 45},
      {.name = "one by one", .m = 1, .n = 1, .k = 1},
      {.name = "long k", .m = 16, .n = 32, .k = 4096},
      {.name = "padded rows", .m = 40, .n = 96, .k = 72, .pad = 8},
      {.name = "oddly padded rows", .m = 40, .n = 96, .k = 72, .pad = 3},
      {.name = "unaligned", .m = 48, .n = 80, .k = 64, .offset = 1},
      {.name = "unaligned with bias and C",
       .m = 48,
       .n = 80,
       .k = 64,
       .offset = 3,
       .has_c = true,
       .has_bias = true},
      {.name = "bias", .m = 64, .n = 128, .k = 64, .has_bias = true},
      {.name = "C and bias", .m = 32, .n = 136, .k = 64, .pad = 8, .has_c = true, .has_bias = true},
      {.name = "C is D", .m = 32, .n = 64, .k = 64, .has_bias = true, .in_place = true},
      {.name = "batch", .m = 24, .n = 64, .k = 32, .batch = 5, .has_bias = true},
      {.name = "batch of one W",
       .m = 24,
       .n = 64,
       .k = 32,
       .batch = 3,
       .has_c = true,
       .share_w = true},
      {.name = "odd batch",
       .m = 7,
       .n = 9,
       .k = 11,
       .batch = 4,
       .pad = 1,
       .offset = 1,
       .has_bias = true},
      {.name = "tf32", .m = 64, .n = 64, .k = 256, .allow_tf32 = true},
      {.name = "few SMs", .m = 256, .n = 256, .k = 64, .sm_budget = 16},
  };
}

// What no epilogue of cuBLASLt's ends.
std::vector<GemmCase> EpilogueCases() {
  return {
      {.name = "scales of rows", .m = 40, .n = 136, .k = 64, .has_c = true, .row_scales = true},
      {.name = "scales of rows, C is D",
       .m = 33,
       .n = 72,
       .k = 64,
       .has_bias = true,
       .in_place = true,
       .row_scales = true},
      {.name = "scales of rows and a residual",
       .m = 33,
       .n = 71,
       .k = 45,
       .pad = 3,
       .offset = 1,
       .has_c = true,
       .has_bias = true,
       .residual = true,
       .row_scales = true},
      {.name = "scales of rows of a batch", .m = 24, .n = 64, .batch = 3, .row_scales = true},
      {.name = "residual", .m = 40, .n = 136, .k = 64, .pad = 8, .has_c = true, .residual = true},
      {.name = "residual is D",
       .m = 70,
       .n = 64,
       .k = 64,
       .has_bias = true,
       .in_place = true,
       .residual = true},
      {.name = "unaligned residual",
       .m = 33,
       .n = 71,
       .k = 45,
       .offset = 1,
       .has_c = true,
       .has_bias = true,
       .residual = true},
      {.name = "residual of a batch",
       .m = 24,
       .n = 64,
       .k = 32,
       .batch = 3,
       .has_c = true,
       .residual = true},
  };
}

// For activations that gate.
std::vector<GemmCase> GatedCases() {
  return {
      {.name = "gated", .m = 40, .n = 144, .k = 64, .pad = 8, .has_bias = true, .gated = true},
      {.name = "gated, one row", .m = 1, .n = 512, .k = 128, .gated = true},
      {.name = "gated by turns", .m = 70, .n = 272, .k = 64, .gated = true, .interleaved = true},
      {.name = "gated, unaligned",
       .m = 65,
       .n = 142,
       .k = 45,
       .offset = 1,
       .has_bias = true,
       .gated = true},
      {.name = "gated by turns, unaligned",
       .m = 33,
       .n = 262,
       .k = 77,
       .pad = 3,
       .offset = 1,
       .has_bias = true,
       .gated = true,
       .interleaved = true},
      {.name = "gated, of a batch",
       .m = 24,
       .n = 192,
       .k = 32,
       .batch = 3,
       .has_bias = true,
       .share_w = true,
       .gated = true},
      {.name = "gated by turns, rows scaled",
       .m = 48,
       .n = 96,
       .k = 64,
       .row_scales = true,
       .gated = true,
       .interleaved = true,
       .a_scales = Scales::kPerRow,
       .w_scales = Scales::kPerRow},
  };
}

// What only fp8 has. Sizes are multiples of 16, as cuBLASLt asks for, but where the case is about
// something else.
std::vector<GemmCase> Fp8Cases() {
  constexpr Scales kNone = Scales::kNone, kPerRow = Scales::kPerRow;
  return {
      {.name = "no scales", .n = 128, .a_scales = kNone, .w_scales = kNone},
      {.name = "one scale", .n = 128, .a_scales = kNone},
      {.name = "per tensor, long k", .m = 64, .n = 128, .k = 2048},
      {.name = "per tensor, fp16 D", .n = 128, .k = 256, .fp8_d = Dtype::kFp16},
      {.name = "per tensor, few rows", .m = 3, .n = 256, .k = 512, .has_bias = true},
      {.name = "per tensor, batch", .n = 128, .k = 128, .batch = 3},
      {.name = "per tensor, few SMs", .m = 256, .n = 256, .k = 256, .sm_budget = 16},
      {.name = "per row", .m = 128, .n = 256, .k = 512, .a_scales = kPerRow, .w_scales = kPerRow},
      {.name = "per row, C and bias, fp16 D",
       .m = 48,
       .n = 272,
       .k = 160,
       .has_c = true,
       .has_bias = true,
       .a_scales = kPerRow,
       .w_scales = kPerRow,
       .fp8_d = Dtype::kFp16},
      {.name = "per row, one row",
       .m = 1,
       .n = 256,
       .k = 128,
       .a_scales = kPerRow,
       .w_scales = kPerRow},
      {.name = "per row of A only", .n = 128, .a_scales = kPerRow},
      {.name = "per row of W only", .n = 128, .a_scales = kNone, .w_scales = kPerRow},
      {.name = "per row, batch",
       .m = 16,
       .n = 48,
       .k = 64,
       .batch = 3,
       .a_scales = kPerRow,
       .w_scales = kPerRow},
      {.name = "per row, unaligned tails",
       .m = 65,
       .n = 131,
       .k = 77,
       .pad = 3,
       .offset = 3,
       .has_c = true,
       .has_bias = true,
       .a_scales = kPerRow,
       .w_scales = kPerRow,
       .fp8_d = Dtype::kFp16},
      {.name = "per row, 16 elements from the start",
       .m = 33,
       .n = 64,
       .k = 64,
       .offset = 16,
       .has_bias = true,
       .a_scales = kPerRow,
       .w_scales = kPerRow},
      {.name = "per row, unaligned scales only",
       .m = 33,
       .n = 64,
       .k = 64,
       .a_scales = kPerRow,
       .w_scales = kPerRow,
       .scales_offset = 1},
  };
}

class GpuGemmTest : public GpuTest {
 protected:
  void RunAllActivations(const GemmCase& shape, Dtype dtype) {
    for (const Activation activation :
         {Activation::kNone, Activation::kRelu, Activation::kGelu, Activation::kSilu}) {
      if (shape.gated && activation < Activation::kGelu) continue;
      SCOPED_TRACE(shape.name + ", dtype " + std::to_string(static_cast<int>(dtype)) +
                   ", activation " + std::to_string(static_cast<int>(activation)) + ", seed " +
                   std::to_string(Seed()));
      GemmRun run(device(), shape, dtype, activation, random_);
      const Op* ops[] = {&run.op()};
      const policies::Lane lane = random_() % policies::kCollectiveLane;
      ASSERT_OK(
          device().Launch({.planned = {.lane = lane, .sm_budget = shape.sm_budget}, .ops = ops}));
      Finish(lane);
      run.Check();
      if (HasFatalFailure()) return;
    }
  }

  std::mt19937 random_{Seed()};
};

TEST_F(GpuGemmTest, MatchesReference) {
  for (const GemmCase& shape : Cases()) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32, Dtype::kFp8E4m3})
      RunAllActivations(shape, dtype);
  }
}

TEST_F(GpuGemmTest, MatchesReferenceWithEveryEpilogue) {
  std::vector<GemmCase> cases = EpilogueCases();
  for (const GemmCase& shape : GatedCases()) cases.push_back(shape);
  for (const GemmCase& shape : cases) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32, Dtype::kFp8E4m3})
      RunAllActivations(shape, dtype);
  }
}

TEST_F(GpuGemmTest, Fp8MatchesReferenceWithAllKindsOfScales) {
  for (const GemmCase& shape : Fp8Cases()) RunAllActivations(shape, Dtype::kFp8E4m3);
}

// Sums of 384 rows fit in the workspace: bands, the last of them shorter.
TEST_F(GpuGemmTest, MakesInBandsWhatNoEpilogueEnds) {
  const GemmCase shape = {.name = "bands",
                          .m = 900,
                          .n = 16384,
                          .k = 32,
                          .has_bias = true,
                          .in_place = true,
                          .residual = true,
                          .row_scales = true};
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp8E4m3}) {
    GemmRun run(device(), shape, dtype, Activation::kSilu, random_);
    const Op* ops[] = {&run.op()};
    ASSERT_OK(device().Launch({.ops = ops}));
    Finish(0);
    run.Check();
  }
  GemmRun gated(device(), {.name = "gated", .m = 500, .n = 16384, .k = 32, .gated = true},
                Dtype::kBf16, Activation::kSilu, random_);
  const Op* ops[] = {&gated.op()};
  ASSERT_OK(device().Launch({.ops = ops}));
  Finish(0);
  gated.Check();
}

// One shape, so that the second GEMM finds the description that the first one left behind.
TEST_F(GpuGemmTest, Fp8ReadsTheScalesOfItsOwnOp) {
  const GemmCase shape = {.name = "shared plan", .n = 128, .k = 128, .has_bias = true};
  GemmRun first(device(), shape, Dtype::kFp8E4m3, Activation::kNone, random_);
  GemmRun second(device(), shape, Dtype::kFp8E4m3, Activation::kNone, random_);
  const Op* ops[] = {&first.op(), &second.op()};
  for (const Op*& op : ops) ASSERT_OK(device().Launch({.ops = {&op, 1}}));
  Finish(0);
  first.Check();
  second.Check();
}

// More problems than the cache holds, so that entries are evicted and planned again.
TEST_F(GpuGemmTest, SurvivesCacheEviction) {
  GemmRun first(device(), {.name = "first", .m = 3, .n = 40, .k = 24, .has_bias = true},
                Dtype::kBf16, Activation::kRelu, random_);
  HostMirror scratch(device(), 1 << 20, 0);
  for (uint32_t i = 0; i < 1200; ++i) {
    Op op = first.op();
    op.gemm.m = 1 + i % 64, op.gemm.n = 8 + 8 * (i / 64);
    op.gemm.a = op.gemm.w = scratch.address(), op.gemm.d = scratch.address() + (1 << 19);
    op.gemm.bias = scratch.address();
    op.gemm.ldd = op.gemm.n;
    const Op* ops[] = {&op};
    ASSERT_OK(device().Launch({.ops = ops}));
  }
  const Op* ops[] = {&first.op()};
  ASSERT_OK(device().Launch({.ops = ops}));
  Finish(0);
  first.Check();
}

}  // namespace
}  // namespace concert::test
