// The skinny kernel against a double-precision reference: every tiling, all that it takes in, sizes
// that no tile divides, and launches that begin before the one ahead has ended.
#include <cmath>
#include <cstring>
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

  // Tiled as graphs have it.
  absl::Status Launch(const SkinnyGemm& skinny, bool weights_ahead) {
    const absl::StatusOr<SkinnyTiling> tiling = kernels::cuda::TilingOn(Context(), skinny);
    if (!tiling.ok()) return tiling.status();
    return kernels::cuda::LaunchSkinny(Context(), skinny, *tiling, weights_ahead);
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

// A GEMM that adds to x and norms what it makes ahead, and the one that reads it, each tiled in its
// own way. Matrices are one behind the other, each with a gap of poison behind it.
class Handover {
 public:
  static constexpr uint32_t kBefore = 512, kColumns = 832, kAfter = 200;
  static constexpr float kEpsilon = 0.125f, kAlpha = 1.0f / 16;

  // `tiling`: of who makes.
  Handover(CudaDevice& device, uint32_t rows, SkinnyTiling tiling, std::mt19937& random)
      : rows_(rows), tiling_(tiling), memory_(device, kEnd, kPoison) {
    Fill(kA, rows * kBefore, random);
    Fill(kW, kColumns * kBefore, random);
    Fill(kX, rows * kColumns, random);
    Fill(kGain, kColumns, random);
    Fill(kNextW, kAfter * kColumns, random);
    memory_.Upload();
  }

  SkinnyGemm Maker() const {
    SkinnyGemm maker = {Gemm(kA, kBefore, kW, kX, kColumns)};
    maker.gemm.c = maker.gemm.d, maker.gemm.ldc = maker.gemm.ldd, maker.gemm.beta = 1;
    maker.gemm.residual = true;
    maker.d_normed = Normed();
    maker.d_gain = At(kGain);
    return maker;
  }
  SkinnyGemm Reader() const {
    SkinnyGemm reader = {Gemm(kX, kColumns, kNextW, kOut, kAfter)};
    reader.epsilon = kEpsilon;
    reader.a_normed = Normed();
    return reader;
  }

  void Check() {
    memory_.Download();
    std::vector<double> norms;
    for (uint32_t row = 0; row < rows_; ++row) {
      ASSERT_NO_FATAL_FAILURE(CheckRow(row));
      norms.push_back(1 / std::sqrt(SquaresOf(row, 0, kColumns) / kColumns + kEpsilon));
    }
    double error = 0, all = 0;
    for (uint32_t row = 0; row < rows_; ++row) {
      for (uint32_t column = 0; column < kAfter; ++column) {
        double sum = 0;
        for (uint32_t k = 0; k < kColumns; ++k)
          sum +=
              Bf16(kX, row * kColumns + k) * Bf16(kGain, k) * Bf16(kNextW, column * kColumns + k);
        const double expected = kAlpha * norms[row] * sum,
                     off = Bf16(kOut, row * kAfter + column) - expected;
        error += off * off;
        all += expected * expected;
      }
    }
    EXPECT_TRUE(std::sqrt(error) <= kTolerance * std::sqrt(all)) << std::sqrt(error / all);
    for (const uint64_t behind : {kRowsAt + 2 * rows_ * kColumns, kOut + 2 * rows_ * kAfter})
      EXPECT_EQ(memory_.bytes()[behind], kPoison);
    EXPECT_EQ(memory_.bytes()[kSquares + sizeof(float) * kernels::kMaxSkinnyRows * Normed().tiles],
              kPoison);
  }

 private:
  static constexpr uint8_t kPoison = 0xff;
  static constexpr uint64_t kGap = 256, kRows = kernels::kMaxSkinnyRows;
  static constexpr uint64_t kA = 0, kW = kA + 2 * kRows * kBefore + kGap,
                            kX = kW + 2 * kColumns * kBefore + kGap,
                            kGain = kX + 2 * kRows * kColumns + kGap,
                            kNextW = kGain + 2 * kColumns + kGap,
                            kOut = kNextW + 2 * kAfter * kColumns + kGap,
                            kRowsAt = kOut + 2 * kRows * kAfter + kGap,
                            kSquares = kRowsAt + 2 * kRows * kColumns + kGap,
                            kEnd = kSquares + 4 * kRows * (kColumns / 32) + kGap;

  Address At(uint64_t offset) const { return memory_.address() + offset; }
  GemmArgs Gemm(uint64_t a, uint32_t k, uint64_t w, uint64_t d, uint32_t n) const {
    GemmArgs gemm = {};
    gemm.m = rows_, gemm.n = n, gemm.k = k, gemm.batch = 1;
    gemm.a = At(a), gemm.w = At(w), gemm.d = At(d);
    gemm.lda = gemm.ldw = k, gemm.ldd = n;
    gemm.alpha = kAlpha;
    gemm.dtype = gemm.d_dtype = Dtype::kBf16;
    return gemm;
  }
  kernels::NormedAhead Normed() const {
    return {At(kRowsAt), At(kSquares), tiling_.TilesOf(kColumns)};
  }
  void Fill(uint64_t begin, uint64_t elements, std::mt19937& random) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (uint64_t i = 0; i < elements; ++i)
      ElementFromFloat(Dtype::kBf16, uniform(random), &memory_.bytes()[begin + 2 * i]);
  }
  double Bf16(uint64_t begin, uint64_t element) {
    return ElementToDouble(Dtype::kBf16, &memory_.bytes()[begin + 2 * element]);
  }
  double SquaresOf(uint32_t row, uint32_t begin, uint32_t end) {
    double squares = 0;
    for (uint32_t i = begin; i < std::min(end, kColumns); ++i)
      squares += std::pow(Bf16(kX, row * kColumns + i), 2);
    return squares;
  }
  // What is normed ahead is of x as it is stored.
  void CheckRow(uint32_t row) {
    for (uint32_t i = 0; i < kColumns; ++i) {
      uint8_t expected[2];
      ElementFromFloat(Dtype::kBf16,
                       static_cast<float>(Bf16(kX, row * kColumns + i) * Bf16(kGain, i)), expected);
      ASSERT_EQ(std::memcmp(expected, &memory_.bytes()[kRowsAt + 2 * (row * kColumns + i)], 2), 0)
          << "row " << row << ", column " << i;
    }
    for (uint32_t tile = 0; tile < tiling_.TilesOf(kColumns); ++tile) {
      const double expected = SquaresOf(row, tile * tiling_.columns, (tile + 1) * tiling_.columns);
      const double squares =
          ElementToDouble(Dtype::kFp32, &memory_.bytes()[kSquares + 4 * (tile * kRows + row)]);
      ASSERT_NEAR(squares, expected, 1e-5 * expected) << "row " << row << ", tile " << tile;
    }
  }

  const uint32_t rows_;
  const SkinnyTiling tiling_;
  HostMirror memory_;
};

TEST_F(GpuSkinnyTest, NormsAheadForTheNext) {
  for (const uint32_t rows : {1u, 37u, 64u}) {
    for (const uint32_t columns : {32u, 64u, 96u, 128u}) {
      for (const uint32_t parts : {1u, 3u, 8u}) {
        SCOPED_TRACE(
            absl::StrCat(rows, " rows, ", columns, " columns, ", parts, " parts, seed ", Seed()));
        const SkinnyTiling tiling = {columns, parts}, next = {160 - columns, 9 - parts};
        Handover handover(device(), rows, tiling, random_);
        ASSERT_OK(kernels::cuda::LaunchSkinny(Context(), handover.Maker(), tiling,
                                              /*weights_ahead=*/false));
        ASSERT_OK(kernels::cuda::LaunchSkinny(Context(), handover.Reader(), next,
                                              /*weights_ahead=*/true));
        ASSERT_NO_FATAL_FAILURE(Finish(kLane));
        ASSERT_NO_FATAL_FAILURE(handover.Check());
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
      ASSERT_OK(Launch({op.gemm}, /*weights_ahead=*/again > 0 && link > 0));
    }
    ASSERT_NO_FATAL_FAILURE(Finish(kLane));
    matrices.Download();
    if (again == 0) first = matrices.bytes();
    ASSERT_EQ(matrices.bytes(), first) << "the " << again << ". time, seed " << Seed();
  }
}

}  // namespace
}  // namespace concert::test
