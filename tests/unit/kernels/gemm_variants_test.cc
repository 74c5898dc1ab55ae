#include "kernels/gemm/gemm_variants.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "tests/unit/kernels/fake_cuda.h"

namespace concert::test {
namespace {

using kernels::cuda::GemmHeuristic;
using kernels::cuda::ListVariants;
using policies::Dtype;
using policies::Problem;
using policies::Variant;

constexpr int kSms = 132;
constexpr Problem kProblem = {.m = 64, .n = 4096, .k = 1024};

class VariantsTest : public testing::Test {
 protected:
  std::vector<Variant> List(int sm_budget, const Problem& problem = kProblem) {
    const GemmHeuristic heuristic(fake_.api().cublaslt, nullptr, FakeCuda::kWorkspaceBytes);
    return ListVariants(fake_.api().cublaslt, heuristic, kSms, problem, sm_budget);
  }
  static std::vector<int> Ids(const std::vector<Variant>& variants) {
    std::vector<int> ids;
    for (const Variant& variant : variants) ids.push_back(variant.algo_id);
    return ids;
  }

  FakeCuda fake_;
};

TEST_F(VariantsTest, DescribesAnAlgorithmInConcertsOrientation) {
  fake_.offers[0] = {{.id = 66,
                      .tile = CUBLASLT_MATMUL_TILE_128x256,
                      .stages = CUBLASLT_MATMUL_STAGES_64x4,
                      .swizzle = 1,
                      .custom = 5,
                      .cluster = CUBLASLT_CLUSTER_SHAPE_2x1x1,
                      .split = 3}};
  const std::vector<Variant> variants = List(0);
  ASSERT_EQ(variants.size(), 1u);
  const Variant& variant = variants.front();
  EXPECT_EQ(variant.source, Variant::Source::kCublasLt);
  EXPECT_EQ(variant.algo_id, 66);
  EXPECT_EQ(variant.tile_id, CUBLASLT_MATMUL_TILE_128x256);
  EXPECT_EQ(variant.tile_m, 256);  // cuBLASLt's columns are concert's rows of A
  EXPECT_EQ(variant.tile_n, 128);
  EXPECT_EQ(variant.tile_k, 64);
  EXPECT_EQ(variant.stages, 4);
  EXPECT_EQ(variant.cluster_m, 1);
  EXPECT_EQ(variant.cluster_n, 2);
  EXPECT_EQ(variant.split_k, 3);
  EXPECT_EQ(variant.swizzle, 1);
  EXPECT_EQ(variant.custom, 5);
  EXPECT_EQ(variant.inner_id, 0) << "the fake does not tell it";
}

TEST_F(VariantsTest, KeepsIdsThatItCannotDecode) {
  fake_.offers[0] = {{.tile = 9999, .stages = CUBLASLT_MATMUL_STAGES_64xAUTO, .cluster = 0}};
  const std::vector<Variant> variants = List(0);
  ASSERT_EQ(variants.size(), 1u);
  EXPECT_EQ(variants[0].tile_id, 9999);
  EXPECT_EQ(variants[0].tile_m, 0);
  EXPECT_EQ(variants[0].tile_k, 64);
  EXPECT_EQ(variants[0].stages, 0) << "cuBLASLt chooses";
  EXPECT_EQ(variants[0].cluster_m, 0);
}

// Every tile whose name is in the header decodes, transposed.
TEST_F(VariantsTest, DecodesEveryTile) {
  for (const auto& [id, m, n] : {std::tuple{CUBLASLT_MATMUL_TILE_8x8, 8, 8},
                                 {CUBLASLT_MATMUL_TILE_64x96, 96, 64},
                                 {CUBLASLT_MATMUL_TILE_768x64, 64, 768},
                                 {CUBLASLT_MATMUL_TILE_256x1024, 1024, 256},
                                 {CUBLASLT_MATMUL_TILE_512x1024, 1024, 512}}) {
    fake_.offers[0] = {{.tile = static_cast<uint32_t>(id)}};
    const std::vector<Variant> variants = List(0);
    ASSERT_EQ(variants.size(), 1u);
    EXPECT_EQ(variants[0].tile_m, m) << id;
    EXPECT_EQ(variants[0].tile_n, n) << id;
  }
  for (uint32_t id = 1; id < CUBLASLT_MATMUL_TILE_END; ++id) {
    fake_.offers[0] = {{.tile = id}};
    EXPECT_NE(List(0).front().tile_m, 0) << id;
  }
}

TEST_F(VariantsTest, AllSmsAlsoMeansHalfAndQuarter) {
  fake_.offers[0] = {{.id = 1}};
  fake_.offers[66] = {{.id = 2}};
  fake_.offers[33] = {{.id = 3}};
  fake_.offers[40] = {{.id = 4}};
  const std::vector<Variant> variants = List(0);
  EXPECT_THAT(Ids(variants), testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(variants[0].sm_budget, 0);
  EXPECT_EQ(variants[1].sm_budget, 66);
  EXPECT_EQ(variants[2].sm_budget, 33);
  EXPECT_THAT(Ids(List(40)), testing::ElementsAre(4));
}

TEST_F(VariantsTest, ListsNothingTwice) {
  // The same algorithm at all three targets, and two that describe themselves alike.
  fake_.offers[0] = {{.id = 1}, {.id = 2, .blocks = 10}, {.id = 2, .blocks = 20}};
  EXPECT_THAT(Ids(List(0)), testing::ElementsAre(1, 2));
}

TEST_F(VariantsTest, LeavesOutWhatCannotRun) {
  fake_.offers[0] = {{.id = 1, .state = CUBLAS_STATUS_NOT_SUPPORTED},
                     {.id = 2, .workspace = FakeCuda::kWorkspaceBytes + 1},
                     {.id = 3, .workspace = FakeCuda::kWorkspaceBytes}};
  EXPECT_THAT(Ids(List(0)), testing::ElementsAre(3));
}

TEST_F(VariantsTest, IsBounded) {
  for (int target : {0, 66, 33}) {
    for (int i = 0; i < 100; ++i) fake_.offers[target].push_back({.id = 1000 * target + i});
  }
  EXPECT_EQ(List(0).size(), static_cast<size_t>(kernels::cuda::kMaxVariants));
  EXPECT_EQ(List(66).size(), static_cast<size_t>(kernels::cuda::kMaxVariants));
}

TEST_F(VariantsTest, Fp8GoesIntoBf16WithoutScales) {
  fake_.offers[0] = {{.id = 1}};
  Problem problem = kProblem;
  problem.dtype = Dtype::kFp8E4m3;
  const std::vector<Variant> variants = List(0, problem);
  ASSERT_EQ(variants.size(), 1u);
  EXPECT_EQ(variants[0].dtype, Dtype::kFp8E4m3);
  EXPECT_EQ(fake_.question.w_type, CUDA_R_8F_E4M3);
  EXPECT_EQ(fake_.question.d_type, CUDA_R_16BF);
  EXPECT_EQ(fake_.question.w_scales, 0u);
  EXPECT_EQ(fake_.question.a_scales, 0u);
  problem.k = 1000;
  EXPECT_TRUE(List(0, problem).empty()) << "rows that are no multiple of 16 bytes";
}

TEST_F(VariantsTest, RefusesWhatIsNoProblem) {
  fake_.offers[0] = {{}};
  for (const Problem& problem : {Problem{.m = 0, .n = 8, .k = 8}, Problem{.m = 8, .n = 8, .k = 0},
                                 Problem{.m = 8, .n = 8, .k = 8, .batch = 0},
                                 Problem{.m = UINT32_MAX, .n = UINT32_MAX, .k = UINT32_MAX},
                                 Problem{.m = 8, .n = 8, .k = 8, .batch = UINT32_MAX}}) {
    EXPECT_TRUE(List(0, problem).empty());
  }
  EXPECT_EQ(fake_.heuristic_calls, 0);
}

}  // namespace
}  // namespace concert::test
