// Variants of GEMMs on a GPU: every one listed computes the right thing, budgets hold, what tuning
// found is used while it exists, and equal GEMMs run as one launch.
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "kernels/gemm/gemm_variants.h"
#include "tests/gpu/gemm_run.h"
#include "tests/support/seed.h"

namespace concert::test {
namespace {

using kernels::VariantName;
using kernels::cuda::GemmEntry;
using kernels::cuda::GemmKey;
using policies::Form;
using policies::Problem;
using policies::TunedTable;
using policies::Variant;

class VariantTest : public GpuTest {
 protected:
  void TearDown() override {
    if (kEnvironment->node_ != nullptr) device().UseTuned(nullptr);
  }

  // Runs the op alone with `request` and checks D.
  void LaunchAndCheck(GemmRun& run, daemon::LaunchRequest request) {
    const Op* ops[] = {&run.op()};
    request.ops = ops;
    run.Poison();
    ASSERT_OK(device().Launch(request));
    Finish(0);
    run.Check();
  }

  static Problem ProblemOf(const Op& op) {
    return {op.gemm.m, op.gemm.n, op.gemm.k, op.gemm.batch, op.gemm.dtype};
  }
  uint64_t stale() { return device().gemm_cache().stale(); }
};

std::vector<GemmCase> VariantCases() {
  return {{.name = "decode", .m = 16, .n = 1024, .k = 512},
          {.name = "prefill", .m = 256, .n = 512, .k = 256},
          {.name = "one row", .m = 1, .n = 1024, .k = 256},
          {.name = "odd sizes", .m = 65, .n = 127, .k = 129},
          {.name = "long k", .m = 64, .n = 64, .k = 8192},
          {.name = "batch", .m = 48, .n = 128, .k = 64, .batch = 6}};
}

// cuBLASLt has kernels for any problem, but of fp8 only for some.
bool MustHaveVariants(const GemmCase& shape, Dtype dtype) {
  return dtype != Dtype::kFp8E4m3 || (shape.m % 16 == 0 && shape.n % 16 == 0 && shape.k % 16 == 0);
}

TEST_F(VariantTest, EveryListedVariantIsRight) {
  std::mt19937 random(Seed());
  const uint64_t stale_before = stale();
  for (GemmCase shape : VariantCases()) {
    shape.a_scales = shape.w_scales = Scales::kNone;  // as variants are listed
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32, Dtype::kFp8E4m3}) {
      GemmRun run(device(), shape, dtype, Activation::kNone, random);
      const std::vector<Variant> variants = device().Variants(ProblemOf(run.op()), 0);
      std::printf("[ MEASURED ] %s, dtype %d: %zu variants, first %s\n", shape.name.c_str(),
                  static_cast<int>(dtype), variants.size(),
                  variants.empty() ? "-" : VariantName(variants[0]).c_str());
      EXPECT_TRUE(!variants.empty() || !MustHaveVariants(shape, dtype)) << shape.name;
      for (const Variant& variant : variants) {
        SCOPED_TRACE(shape.name + ", dtype " + std::to_string(static_cast<int>(dtype)) + ", " +
                     VariantName(variant) + ", seed " + std::to_string(Seed()));
        LaunchAndCheck(run, {.variant = &variant});
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_EQ(stale(), stale_before) << "a variant just listed was not found again";
}

// Scales are not what a variant was listed for; it runs or steps aside.
TEST_F(VariantTest, Fp8VariantsAreRightWithAllKindsOfScales) {
  std::mt19937 random(Seed());
  for (const Scales scales : {Scales::kPerTensor, Scales::kPerRow}) {
    const GemmCase shape = {
        .name = "scaled", .m = 64, .n = 256, .k = 512, .a_scales = scales, .w_scales = scales};
    GemmRun run(device(), shape, Dtype::kFp8E4m3, Activation::kNone, random);
    for (const Variant& variant : device().Variants(ProblemOf(run.op()), 0)) {
      SCOPED_TRACE(VariantName(variant) + ", scales " + std::to_string(static_cast<int>(scales)));
      LaunchAndCheck(run, {.variant = &variant});
      if (HasFatalFailure()) return;
    }
  }
}

// Epilogues, padded rows and C are not what a variant was listed for; it runs or steps aside.
TEST_F(VariantTest, VariantsOfOtherLayoutsAreRight) {
  std::mt19937 random(Seed());
  const GemmCase shapes[] = {
      {.name = "padded", .m = 40, .n = 96, .k = 72, .pad = 8},
      {.name = "oddly padded", .m = 40, .n = 96, .k = 72, .pad = 3},
      {.name = "unaligned", .m = 40, .n = 96, .k = 72, .offset = 1, .has_bias = true},
      {.name = "C and bias", .m = 40, .n = 96, .k = 72, .has_c = true, .has_bias = true}};
  for (const GemmCase& shape : shapes) {
    for (const Activation activation : {Activation::kNone, Activation::kGelu, Activation::kSilu}) {
      GemmRun run(device(), shape, Dtype::kBf16, activation, random);
      for (const Variant& variant : device().Variants(ProblemOf(run.op()), 0)) {
        SCOPED_TRACE(shape.name + ", activation " + std::to_string(static_cast<int>(activation)) +
                     ", " + VariantName(variant));
        LaunchAndCheck(run, {.variant = &variant});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The grid is verified, and larger than the budget only if no candidate's is not: then none of the
// first variants listed for the budget, each with those behind it, is smaller either.
TEST_F(VariantTest, BudgetsAreKept) {
  std::mt19937 random(Seed());
  for (const GemmCase& shape : {GemmCase{.name = "small", .m = 64, .n = 512, .k = 256},
                                GemmCase{.name = "wide", .m = 256, .n = 4096, .k = 64},
                                GemmCase{.name = "long k", .m = 64, .n = 256, .k = 4096}}) {
    GemmRun run(device(), shape, Dtype::kBf16, Activation::kNone, random);
    for (const int budget : {8, 33, 66, 100, 124}) {
      SCOPED_TRACE(shape.name + " on " + std::to_string(budget) + " SMs");
      LaunchAndCheck(run, {.planned = {.sm_budget = budget}});
      GemmKey key = GemmKey::Of(run.op().gemm, budget, CudaDevice::kWorkspaceBytes);
      const GemmEntry* entry = device().gemm_cache().Peek(key);
      ASSERT_NE(entry, nullptr);
      const uint32_t blocks = entry->blocks;
      std::printf("[ MEASURED ] %s, budget %d: %u blocks\n", shape.name.c_str(), budget, blocks);
      EXPECT_GT(blocks, 0u) << "the grid could not be seen";
      if (blocks <= static_cast<uint32_t>(budget)) continue;
      const std::vector<Variant> variants = device().Variants(ProblemOf(run.op()), budget);
      ASSERT_FALSE(variants.empty());
      LaunchAndCheck(run, {.planned = {.sm_budget = budget}, .variant = &variants[0]});
      key.variant = variants[0];
      const GemmEntry* first = device().gemm_cache().Peek(key);
      ASSERT_NE(first, nullptr);
      EXPECT_GT(first->blocks, static_cast<uint32_t>(budget)) << VariantName(variants[0]);
    }
  }
}

TEST_F(VariantTest, TunedVariantIsUsedWhileItIsThere) {
  std::mt19937 random(Seed());
  GemmRun run(device(), {.name = "tuned", .m = 96, .n = 768, .k = 256}, Dtype::kBf16,
              Activation::kNone, random);
  const std::vector<Variant> variants = device().Variants(ProblemOf(run.op()), 0);
  ASSERT_GT(variants.size(), 1u);
  policies::TunedRow row;
  row.key = {.problem = ProblemOf(run.op())};
  row.variant = variants.back();
  device().UseTuned(std::make_shared<TunedTable>(std::vector{row}));
  const uint64_t stale_before = stale();
  LaunchAndCheck(run, {});
  EXPECT_EQ(stale(), stale_before);
  GemmKey key = GemmKey::Of(run.op().gemm, 0, CudaDevice::kWorkspaceBytes);
  key.variant = row.variant;
  EXPECT_NE(device().gemm_cache().Peek(key), nullptr) << "the row was not looked up";

  row.variant.algo_id = 9999;
  device().UseTuned(std::make_shared<TunedTable>(std::vector{row}));
  LaunchAndCheck(run, {});
  LaunchAndCheck(run, {});
  EXPECT_EQ(stale(), stale_before + 1);
}

// A tuner lists variants while the dispatcher launches, plans and captures.
TEST_F(VariantTest, ListingDisturbsNoLaunch) {
  std::mt19937 random(Seed());
  constexpr int kRounds = 40;
  std::thread tuner([this] {
    for (uint32_t round = 0; round < kRounds; ++round) {
      EXPECT_FALSE(device().Variants({.m = 8 * (round + 1), .n = 512, .k = 256}, 0).empty());
    }
  });
  for (uint32_t round = 0; round < kRounds && !HasFatalFailure(); ++round) {
    GemmRun run(device(), {.name = "beside", .m = 8 * (round + 1), .n = 64, .k = 64}, Dtype::kBf16,
                Activation::kNone, random);
    LaunchAndCheck(run, {.planned = {.sm_budget = round % 2 == 0 ? 0 : 32}});
  }
  tuner.join();
}

class BatchTest : public VariantTest {
 protected:
  // `count` GEMMs of one shape as one group without a work list.
  void LaunchGroup(const GemmCase& shape, Dtype dtype, Activation activation, int count,
                   std::mt19937& random) {
    std::vector<std::unique_ptr<GemmRun>> runs;
    std::vector<const Op*> ops;
    for (int i = 0; i < count; ++i) {
      runs.push_back(std::make_unique<GemmRun>(device(), shape, dtype, activation, random));
      ops.push_back(&runs.back()->op());
    }
    ASSERT_OK(device().Launch({.planned = {.form = Form::kGroup,
                                           .lane = 1,
                                           .sm_budget = shape.sm_budget,
                                           .degree = policies::DegreeOf(count)},
                               .ops = ops}));
    Finish(1);
    for (int i = 0; i < count; ++i) {
      SCOPED_TRACE("member " + std::to_string(i));
      runs[i]->Check();
    }
  }
};

std::vector<GemmCase> BatchCases() {
  return {{.name = "aligned", .m = 32, .n = 128, .k = 64},
          {.name = "one by one", .m = 1, .n = 1, .k = 1},
          {.name = "edges", .m = 65, .n = 63, .k = 8},
          {.name = "odd", .m = 7, .n = 9, .k = 129},
          {.name = "one row", .m = 1, .n = 256, .k = 127},
          {.name = "padded", .m = 24, .n = 48, .k = 40, .pad = 8},
          {.name = "oddly padded", .m = 24, .n = 48, .k = 40, .pad = 3},
          {.name = "unaligned", .m = 24, .n = 48, .k = 40, .offset = 1},
          {.name = "C", .m = 24, .n = 48, .k = 40, .has_c = true},
          {.name = "C is D", .m = 24, .n = 48, .k = 40, .in_place = true},
          {.name = "bias, one after the other", .m = 24, .n = 48, .k = 40, .has_bias = true},
          {.name = "few SMs", .m = 64, .n = 256, .k = 64, .sm_budget = 33}};
}

TEST_F(BatchTest, EqualGemmsAreRight) {
  std::mt19937 random(Seed());
  for (const GemmCase& shape : BatchCases()) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32, Dtype::kFp8E4m3}) {
      const uint64_t before = device().batched_launches();
      for (int count = 2; count <= 16; ++count) {
        SCOPED_TRACE(std::to_string(count) + " times " + shape.name + ", dtype " +
                     std::to_string(static_cast<int>(dtype)) + ", seed " + std::to_string(Seed()));
        LaunchGroup(shape, dtype, Activation::kNone, count, random);
        if (HasFatalFailure()) return;
      }
      std::printf("[ MEASURED ] %s, dtype %d: %d of 15 groups as one library launch\n",
                  shape.name.c_str(), static_cast<int>(dtype),
                  static_cast<int>(device().batched_launches() - before));
    }
  }
}

TEST_F(BatchTest, ActivationsAreRight) {
  std::mt19937 random(Seed());
  for (const Activation activation : {Activation::kRelu, Activation::kGelu, Activation::kSilu}) {
    SCOPED_TRACE(static_cast<int>(activation));
    LaunchGroup({.name = "activated", .m = 32, .n = 64, .k = 64}, Dtype::kBf16, activation, 5,
                random);
  }
}

// More groups than a lane has room for pointers of, none waited for in between.
TEST_F(BatchTest, ManyGroupsInFlightAreRight) {
  std::mt19937 random(Seed());
  constexpr int kGroups = 64;
  const GemmCase shape = {.name = "in flight", .m = 16, .n = 64, .k = 64};
  std::vector<std::unique_ptr<GemmRun>> runs;
  for (int i = 0; i < 2 * kGroups; ++i) {
    runs.push_back(
        std::make_unique<GemmRun>(device(), shape, Dtype::kBf16, Activation::kNone, random));
  }
  for (int group = 0; group < kGroups; ++group) {
    const Op* ops[] = {&runs[2 * group]->op(), &runs[2 * group + 1]->op()};
    ASSERT_OK(device().Launch({.planned = {.form = Form::kGroup, .lane = 2}, .ops = ops}));
  }
  Finish(2);
  for (const std::unique_ptr<GemmRun>& run : runs) run->Check();
}

}  // namespace
}  // namespace concert::test
