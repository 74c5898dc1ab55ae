// The check must find every way a result can be wrong, and must accept a right one.
#include "tests/bench/gemm_workload.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "Eigen/Core"
#include "gtest/gtest.h"
#include "kernels/gemm/e4m3.h"

namespace concert::bench {
namespace {

constexpr uint64_t kSeed = 7;

template <typename T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <typename T>
Matrix<T> Load(const std::vector<uint8_t>& image, uint64_t offset, uint32_t rows,
               uint32_t columns) {
  Matrix<T> matrix(rows, columns);
  std::memcpy(matrix.data(), image.data() + offset, sizeof(T) * rows * columns);
  return matrix;
}

// The right result, rounded once.
template <typename T>
std::vector<uint8_t> Compute(const GemmWorkload& workload, const std::vector<uint8_t>& image,
                             int set, int gemm) {
  const GemmShape& s = workload.shape(gemm);
  const GemmPlace& place = workload.place(set, gemm);
  const Matrix<float> a = Load<T>(image, place.a, s.m, s.k).template cast<float>();
  const Matrix<float> w = Load<T>(image, place.w, s.n, s.k).template cast<float>();
  const Matrix<T> d = (a * w.transpose()).template cast<T>();
  std::vector<uint8_t> output(workload.output_bytes(gemm));
  std::memcpy(output.data(), d.data(), output.size());
  return output;
}

GemmScenario Scenario(Dtype dtype) {
  return {.name = "x",
          .group = "",
          .gemms = {{33, 70, 129, dtype}, {64, 16, 512, dtype}},
          .unsupported = ""};
}

template <typename T>
void ExpectRightResultsPass(Dtype dtype, double least, double most) {
  const GemmScenario scenario = Scenario(dtype);
  GemmWorkload workload(scenario, kSeed);
  const std::vector<uint8_t> image = workload.MakeImage();
  for (int gemm = 0; gemm < workload.gemms(); ++gemm) {
    const double error = workload.RelativeError(1, gemm, Compute<T>(workload, image, 1, gemm));
    EXPECT_GT(error, least);
    EXPECT_LT(error, most);
    EXPECT_LT(most, GemmWorkload::Tolerance(dtype));
  }
}

TEST(GemmWorkloadTest, ARightResultHasTheErrorOfItsRounding) {
  ExpectRightResultsPass<Eigen::bfloat16>(Dtype::kBf16, 5e-4, 4e-3);
  ExpectRightResultsPass<Eigen::half>(Dtype::kFp16, 5e-5, 5e-4);
  ExpectRightResultsPass<float>(Dtype::kFp32, 1e-9, 1e-6);
}

// With few rows there is little to take a mean of.
TEST(GemmWorkloadTest, ARightResultOfFewRowsHasTheErrorOfItsRoundingToo) {
  const GemmScenario scenario = {.name = "x",
                                 .group = "",
                                 .gemms = {{1, 448, 896, Dtype::kBf16}, {3, 64, 64, Dtype::kBf16}},
                                 .unsupported = ""};
  GemmWorkload workload(scenario, kSeed);
  const std::vector<uint8_t> image = workload.MakeImage();
  ASSERT_GT(workload.sets(), 32);
  for (int set = 0; set < workload.sets(); ++set) {
    for (int gemm = 0; gemm < workload.gemms(); ++gemm) {
      const double error =
          workload.RelativeError(set, gemm, Compute<Eigen::bfloat16>(workload, image, set, gemm));
      EXPECT_LT(error, 4e-3) << "set " << set << ", GEMM " << gemm;
    }
  }
}

// As Compute, from quantised operands and their scales.
std::vector<uint8_t> ComputeFp8(const GemmWorkload& workload, const std::vector<uint8_t>& image,
                                int set, int gemm) {
  const GemmShape& s = workload.shape(gemm);
  const GemmPlace& place = workload.place(set, gemm);
  const auto decode = [](uint8_t bits) { return kernels::DecodeE4m3(bits); };
  const Matrix<float> a = Load<uint8_t>(image, place.a, s.m, s.k).unaryExpr(decode);
  const Matrix<float> w = Load<uint8_t>(image, place.w, s.n, s.k).unaryExpr(decode);
  const float scale = Load<float>(image, place.a_scales, 1, 1)(0, 0) *
                      Load<float>(image, place.w_scales, 1, 1)(0, 0);
  const Matrix<float> product = scale * (a * w.transpose());
  const Matrix<Eigen::bfloat16> d = product.cast<Eigen::bfloat16>();
  std::vector<uint8_t> output(workload.output_bytes(gemm));
  std::memcpy(output.data(), d.data(), output.size());
  return output;
}

TEST(GemmWorkloadTest, Fp8HasTheErrorOfTheRoundingOfDAndNeedsTheRightScale) {
  const GemmScenario scenario = Scenario(Dtype::kFp8E4m3);
  GemmWorkload workload(scenario, kSeed);
  std::vector<uint8_t> image = workload.MakeImage();
  for (int gemm = 0; gemm < workload.gemms(); ++gemm) {
    const double error = workload.RelativeError(1, gemm, ComputeFp8(workload, image, 1, gemm));
    EXPECT_GT(error, 5e-4);
    EXPECT_LT(error, 4e-3);
  }
  EXPECT_NE(workload.place(1, 0).a_scales, workload.place(1, 0).w_scales);
  std::memcpy(&image[workload.place(1, 0).a_scales], &image[workload.place(0, 0).a_scales],
              sizeof(float));
  EXPECT_GT(workload.RelativeError(1, 0, ComputeFp8(workload, image, 1, 0)),
            GemmWorkload::Tolerance(Dtype::kFp8E4m3));
}

TEST(GemmWorkloadTest, EveryPoisonedElementIsFound) {
  const GemmScenario scenario = Scenario(Dtype::kBf16);
  GemmWorkload workload(scenario, kSeed);
  const std::vector<uint8_t> image = workload.MakeImage();
  EXPECT_TRUE(std::isnan(workload.RelativeError(0, 0, workload.Poison(0))));
  std::vector<uint8_t> output = Compute<Eigen::bfloat16>(workload, image, 0, 0);
  output[output.size() - 2] = output[output.size() - 1] = 0xFF;  // one element was never written
  EXPECT_TRUE(std::isnan(workload.RelativeError(0, 0, output)));
}

TEST(GemmWorkloadTest, AnotherSetsResultAndAMissingTileAreFound) {
  const GemmScenario scenario = Scenario(Dtype::kBf16);
  GemmWorkload workload(scenario, kSeed);
  const std::vector<uint8_t> image = workload.MakeImage();
  EXPECT_GT(workload.RelativeError(0, 0, Compute<Eigen::bfloat16>(workload, image, 1, 0)), 0.5);
  std::vector<uint8_t> output = Compute<Eigen::bfloat16>(workload, image, 0, 0);
  std::fill(output.begin(), output.begin() + 2 * 70, 0);  // one row of 33
  EXPECT_GT(workload.RelativeError(0, 0, output), 0.05);
}

TEST(GemmWorkloadTest, AChainReadsWhatItsPredecessorWrote) {
  const GemmScenario chain = {
      .name = "x",
      .group = "",
      .gemms = {{8, 64, 32}, {8, 48, 64}, {8, 40, 64}, {8, 32, 40}, {4, 16, 32}},
      .unsupported = ""};
  GemmWorkload workload(chain, kSeed, GemmWorkload::Layout::kChained);
  EXPECT_EQ(workload.place(0, 1).a, workload.place(0, 0).d);
  EXPECT_NE(workload.place(0, 2).a, workload.place(0, 1).d);  // 48 columns are not its k
  EXPECT_EQ(workload.place(0, 3).a, workload.place(0, 2).d);
  EXPECT_NE(workload.place(0, 4).a, workload.place(0, 3).d);  // nor 8 rows its m
}

TEST(GemmWorkloadTest, ALongChainKeepsTheSizeOfItsValuesAndIsCheckedStepByStep) {
  GemmScenario chain = {.name = "x", .group = "", .gemms = {}, .unsupported = ""};
  chain.gemms.assign(40, {16, 128, 128, Dtype::kFp16});
  GemmWorkload workload(chain, kSeed, GemmWorkload::Layout::kChained);
  std::vector<uint8_t> image = workload.MakeImage();
  for (int gemm = 0; gemm < workload.gemms(); ++gemm) {
    const std::vector<uint8_t> output = Compute<Eigen::half>(workload, image, 1, gemm);
    const GemmPlace& place = workload.place(1, gemm);
    const std::vector<uint8_t> input(image.begin() + place.a,
                                     image.begin() + place.a + workload.input_bytes(gemm));
    const double error = workload.RelativeError(1, gemm, input, output);
    EXPECT_GT(error, 1e-5) << gemm;
    EXPECT_LT(error, 1e-3) << gemm;
    // Another step's output, or another input than it read, is found.
    EXPECT_GT(workload.RelativeError(0, gemm, input, output), 0.5) << gemm;
    if (gemm > 0) {
      EXPECT_GT(workload.RelativeError(1, gemm, output, output), 0.5) << gemm;
    }
    std::copy(output.begin(), output.end(), image.begin() + place.d);
  }
  const Matrix<Eigen::half> last =
      Load<Eigen::half>(image, workload.place(1, workload.gemms() - 1).d, 16, 128);
  const float mean_square = last.cast<float>().squaredNorm() / (16 * 128);
  EXPECT_GT(mean_square, 0.05);
  EXPECT_LT(mean_square, 2);
}

TEST(GemmWorkloadTest, BatchesInFlightHaveSetsOfTheirOwn) {
  for (const uint32_t extent : {1000u, 3000u, 9000u}) {
    const GemmScenario scenario = {
        .name = "x", .group = "", .gemms = {{16, extent, extent}}, .unsupported = ""};
    const GemmWorkload workload(scenario, kSeed);
    EXPECT_GE(workload.sets(), GemmWorkload::kBatchesInFlight);
    EXPECT_EQ(workload.sets() % GemmWorkload::kBatchesInFlight, 0) << extent;
  }
}

TEST(GemmWorkloadTest, SetsAreEnoughToLeaveTheCacheAndNeverOverlap) {
  const GemmScenario scenario = {
      .name = "x", .group = "", .gemms = {{16, 2048, 1024}}, .unsupported = ""};
  GemmWorkload workload(scenario, kSeed);
  EXPECT_GE(workload.bytes(), 180'000'000u);
  uint64_t end = 0;
  for (int set = 0; set < workload.sets(); ++set) {
    const GemmPlace& place = workload.place(set, 0);
    EXPECT_GE(place.a, end);
    EXPECT_GE(place.w, place.a + 2 * 16 * 1024);
    EXPECT_GE(place.d, place.w + 2 * 2048 * 1024);
    end = place.d + workload.output_bytes(0);
  }
  EXPECT_LE(end, workload.bytes());
}

}  // namespace
}  // namespace concert::bench
