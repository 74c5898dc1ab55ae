// The skinny kernel against a double-precision reference: every tiling, all that it takes in, sizes
// that no tile divides, and launches that begin before the one ahead has ended.
#include <string>
#include <vector>

#include "tests/gpu/gemm_run.h"
#include "tests/gpu/skinny_fixture.h"
#include "tests/support/seed.h"

namespace concert::test {
namespace {

using kernels::SkinnyGemm;
using kernels::SkinnyTiling;

std::vector<GemmCase> Cases() {
  return {
      {.name = "all rows", .m = 64, .n = 256, .k = 512},
      {.name = "one row", .m = 1, .n = 256, .k = 128},
      {.name = "one column", .m = 33, .n = 1, .k = 64},
      {.name = "one step of k", .m = 64, .n = 128, .k = 64},
      {.name = "long k", .m = 40, .n = 40, .k = 4096},
      {.name = "more than a wave", .m = 17, .n = 20000, .k = 192},
      {.name = "odd columns, padded", .m = 50, .n = 333, .k = 704, .pad = 8, .has_bias = true},
      {.name = "C and bias", .m = 64, .n = 200, .k = 320, .has_c = true, .has_bias = true},
      {.name = "C is D", .m = 63, .n = 136, .k = 448, .has_bias = true, .in_place = true},
      {.name = "residual", .m = 9, .n = 72, .k = 256, .has_c = true, .residual = true},
      {.name = "scales of rows", .m = 48, .n = 160, .k = 384, .row_scales = true},
      {.name = "norm", .m = 64, .n = 384, .k = 1024, .has_gain = true},
      {.name = "norm, C is D", .m = 24, .n = 100, .k = 832, .in_place = true, .has_gain = true},
  };
}

// For activations that gate.
std::vector<GemmCase> GatedCases() {
  return {
      {.name = "gated", .m = 64, .n = 272, .k = 512, .has_bias = true, .gated = true},
      {.name = "gated, odd", .m = 37, .n = 142, .k = 192, .gated = true, .has_gain = true},
      {.name = "gated by turns",
       .m = 64,
       .n = 266,
       .k = 640,
       .has_bias = true,
       .gated = true,
       .interleaved = true,
       .has_gain = true},
  };
}

class GpuSkinnyTest : public GpuSkinnyTestBase {
 protected:
  void RunIn(const GemmCase& shape, Activation activation, SkinnyTiling tiling) {
    SCOPED_TRACE(absl::StrCat(shape.name, ", activation ", static_cast<int>(activation), ", ",
                              tiling.columns, " columns, ", tiling.parts, " parts, seed ", Seed()));
    GemmRun run(device(), shape, Dtype::kBf16, activation, random_);
    const SkinnyGemm skinny = run.skinny();
    ASSERT_EQ(kernels::SkinnyObjection(skinny.gemm), "");
    ASSERT_OK(kernels::cuda::LaunchSkinny(Context(), skinny, tiling, /*weights_ahead=*/false));
    ASSERT_NO_FATAL_FAILURE(Finish(kLane));
    run.Check();
  }

  std::mt19937 random_{Seed()};
};

TEST_F(GpuSkinnyTest, EveryTilingMatchesTheReference) {
  for (const GemmCase& shape : Cases()) {
    for (const uint32_t columns : {32u, 64u, 96u, 128u}) {
      for (const uint32_t parts : {1u, 2u, 3u, 5u, 8u}) {
        if (parts > shape.k / kernels::kSkinnyStep) continue;
        RunIn(shape, shape.residual ? Activation::kGelu : Activation::kNone, {columns, parts});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(GpuSkinnyTest, EveryTilingGates) {
  for (const GemmCase& shape : GatedCases()) {
    for (const Activation activation : {Activation::kGelu, Activation::kSilu}) {
      for (const uint32_t columns : {32u, 64u, 96u, 128u}) {
        for (const uint32_t parts : {1u, 3u}) RunIn(shape, activation, {columns, parts});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// A chain, in which each reads what the one ahead of it wrote: what is early is right all the same,
// and the bits are those of launches that wait.
TEST_F(GpuSkinnyTest, ChainsThatLoadWeightsAheadHaveTheSameBits) {
  constexpr uint32_t kRows = 64, kSize = 1024, kLinks = 24, kAgain = 20;
  HostMirror weights(device(), uint64_t{kLinks} * kSize * kSize * 2);
  HostMirror matrices(device(), 2 * kRows * kSize * 2);
  weights.FillRandom(Dtype::kBf16, 0, random_);
  std::vector<uint8_t> first;
  for (uint32_t again = 0; again <= kAgain; ++again) {
    std::mt19937 same(Seed());
    matrices.FillRandom(Dtype::kBf16, 0, same);
    for (uint32_t link = 0; link < kLinks; ++link) {
      Op op = SquareGemm(matrices.address() + link % 2 * kRows * kSize * 2,
                         weights.address() + uint64_t{link} * kSize * kSize * 2,
                         matrices.address() + (link + 1) % 2 * kRows * kSize * 2, kSize);
      op.gemm.m = kRows;
      op.gemm.alpha = 1.0f / 16;
      ASSERT_OK(kernels::cuda::LaunchSkinny(Context(), {op.gemm, 0, 0},
                                            /*weights_ahead=*/again > 0 && link > 0));
    }
    ASSERT_NO_FATAL_FAILURE(Finish(kLane));
    matrices.Download();
    if (again == 0) first = matrices.bytes();
    ASSERT_EQ(matrices.bytes(), first) << "the " << again << ". time, seed " << Seed();
  }
}

}  // namespace
}  // namespace concert::test
