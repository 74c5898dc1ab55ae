// GEMMs of the cuda device against a double-precision reference: dtypes, activations, C, bias,
// strides, batches, tf32, SM budgets, and operands at element-aligned addresses only.
#include <string>

#include "tests/gpu/gemm_run.h"

namespace concert::tests {
namespace {

constexpr uint32_t kSeed = 20261121;

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

TEST_F(GpuTest, GemmMatchesReference) {
  std::mt19937 random(kSeed);
  for (const GemmCase& shape : Cases()) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32}) {
      for (const Activation activation :
           {Activation::kNone, Activation::kRelu, Activation::kGelu, Activation::kSilu}) {
        SCOPED_TRACE(shape.name + ", dtype " + std::to_string(static_cast<int>(dtype)) +
                     ", activation " + std::to_string(static_cast<int>(activation)) + ", seed " +
                     std::to_string(kSeed));
        GemmRun run(device(), shape, dtype, activation, random);
        const Op* ops[] = {&run.op()};
        const policies::Lane lane = random() % policies::kCollectiveLane;
        ASSERT_OK(device().Launch(lane, {.ops = ops, .sm_budget = shape.sm_budget}));
        Finish(lane);
        run.Check();
        if (HasFatalFailure()) return;
      }
    }
  }
}

// More problems than the cache holds, so that entries are evicted and planned again.
TEST_F(GpuTest, GemmSurvivesCacheEviction) {
  std::mt19937 random(kSeed);
  GemmRun first(device(), {.name = "first", .m = 3, .n = 40, .k = 24, .has_bias = true},
                Dtype::kBf16, Activation::kRelu, random);
  HostMirror scratch(device(), 1 << 20, 0);
  for (uint32_t i = 0; i < 1200; ++i) {
    Op op = first.op();
    op.gemm.m = 1 + i % 64, op.gemm.n = 8 + 8 * (i / 64);
    op.gemm.a = op.gemm.w = scratch.address(), op.gemm.d = scratch.address() + (1 << 19);
    op.gemm.bias = scratch.address();
    op.gemm.ldd = op.gemm.n;
    const Op* ops[] = {&op};
    ASSERT_OK(device().Launch(0, {.ops = ops}));
  }
  const Op* ops[] = {&first.op()};
  ASSERT_OK(device().Launch(0, {.ops = ops}));
  Finish(0);
  first.Check();
}

}  // namespace
}  // namespace concert::tests
