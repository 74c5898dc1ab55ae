#include "kernels/gemm/gemm_variants.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "cublaslt_ids.inc"
#include "kernels/gemm/gemm_op.h"

namespace concert::kernels::cuda {
namespace {

// "128x256", "64x4" and "2x1" of cuBLASLt's names; 0: AUTO or unknown.
struct Meaning {
  uint16_t id = 0, first = 0, second = 0;
};

#define CONCERT_MEANING(id, first, second) Meaning{id, first, second},
constexpr Meaning kTiles[] = {CONCERT_CUBLASLT_MATMUL_TILE(CONCERT_MEANING)};
constexpr Meaning kStages[] = {CONCERT_CUBLASLT_MATMUL_STAGES(CONCERT_MEANING)};
constexpr Meaning kClusters[] = {CONCERT_CUBLASLT_CLUSTER_SHAPE(CONCERT_MEANING)};
#undef CONCERT_MEANING

Meaning Find(std::span<const Meaning> meanings, uint16_t id) {
  const auto found = std::find_if(meanings.begin(), meanings.end(),
                                  [id](const Meaning& meaning) { return meaning.id == id; });
  return found != meanings.end() ? *found : Meaning{};
}

// `T` is the attribute's type in cublasLt.h. A variant keeps the low 16 bits, which is all that any
// known algorithm uses.
template <typename T>
uint16_t Config(const CublasLt& lt, const cublasLtMatmulAlgo_t& algo,
                cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value = 0;
  size_t written = 0;
  const cublasStatus_t status =
      lt.cublasLtMatmulAlgoConfigGetAttribute(&algo, attribute, &value, sizeof(value), &written);
  return status == CUBLAS_STATUS_SUCCESS ? static_cast<uint16_t>(value) : 0;
}

// `problem` as an op of contiguous, aligned operands.
GemmKey KeyOf(const policies::Problem& problem) {
  GemmArgs args = {};
  args.m = problem.m, args.n = problem.n, args.k = problem.k, args.batch = problem.batch;
  args.lda = args.ldw = problem.k;
  args.ldd = problem.n;
  args.stride_a = uint64_t{problem.m} * problem.k;
  args.stride_w = uint64_t{problem.n} * problem.k;
  args.stride_d = uint64_t{problem.m} * problem.n;
  args.dtype = problem.dtype;
  args.d_dtype = problem.dtype == Dtype::kFp8E4m3 ? Dtype::kBf16 : problem.dtype;
  return GemmKey::Of(args, /*sm_budget=*/0,
                     /*workspace_bytes=*/0);  // address 0 has every alignment
}

bool IsProblem(const policies::Problem& problem) {
  const auto in_range = [](uint64_t value, uint64_t max) { return value >= 1 && value <= max; };
  return in_range(problem.m, kMaxGemmDimension) && in_range(problem.n, kMaxGemmDimension) &&
         in_range(problem.k, kMaxGemmDimension) && in_range(problem.batch, kMaxGemmBatch);
}

}  // namespace

policies::Variant DescribeAlgo(const CublasLt& lt, const cublasLtMatmulAlgo_t& algo, Dtype dtype,
                               int sm_target) {
  policies::Variant variant;
  variant.source = policies::Variant::Source::kCublasLt;
  variant.dtype = dtype;
  variant.sm_budget = static_cast<uint16_t>(sm_target);
  variant.algo_id = Config<int32_t>(lt, algo, CUBLASLT_ALGO_CONFIG_ID);
  variant.tile_id = Config<uint32_t>(lt, algo, CUBLASLT_ALGO_CONFIG_TILE_ID);
  variant.stages_id = Config<uint32_t>(lt, algo, CUBLASLT_ALGO_CONFIG_STAGES_ID);
  variant.cluster_id = Config<uint16_t>(lt, algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID);
  variant.inner_id = Config<uint16_t>(lt, algo, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID);
  variant.split_k = Config<int32_t>(lt, algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
  variant.reduction = Config<uint32_t>(lt, algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
  variant.swizzle = Config<uint32_t>(lt, algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING);
  variant.custom = Config<uint32_t>(lt, algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION);
  const Meaning tile = Find(kTiles, variant.tile_id);
  variant.tile_m = tile.second, variant.tile_n = tile.first;
  const Meaning stages = Find(kStages, variant.stages_id);
  variant.tile_k = stages.first, variant.stages = static_cast<uint8_t>(stages.second);
  const Meaning cluster = Find(kClusters, variant.cluster_id);
  variant.cluster_m = static_cast<uint8_t>(cluster.second);
  variant.cluster_n = static_cast<uint8_t>(cluster.first);
  return variant;
}

std::vector<policies::Variant> ListVariants(const CublasLt& lt, const GemmHeuristic& heuristic,
                                            int sm_count, const policies::Problem& problem,
                                            int sm_budget) {
  std::vector<policies::Variant> variants;
  if (!IsProblem(problem)) return variants;
  std::vector<int> targets = {sm_budget};
  if (sm_budget == 0) targets = {0, sm_count / 2, sm_count / 4};
  const size_t per_target = kMaxVariants / targets.size();
  const GemmKey key = KeyOf(problem);
  std::vector<cublasLtMatmulAlgo_t> seen;
  for (const int target : targets) {
    GemmDescriptors descriptors;
    if (heuristic.Describe(key, CUBLASLT_EPILOGUE_DEFAULT, target, descriptors) !=
        CUBLAS_STATUS_SUCCESS) {
      continue;
    }
    std::array<cublasLtMatmulHeuristicResult_t, kMaxVariants> results = {};
    const int count = heuristic.Candidates(key, descriptors, std::span(results).first(per_target));
    for (const cublasLtMatmulHeuristicResult_t& result : std::span(results).first(count)) {
      const policies::Variant variant = DescribeAlgo(lt, result.algo, problem.dtype, target);
      // One algorithm offered at two targets is one kernel, and two that describe themselves alike
      // could not be told apart later.
      const bool known =
          std::find(variants.begin(), variants.end(), variant) != variants.end() ||
          std::any_of(seen.begin(), seen.end(), [&](const cublasLtMatmulAlgo_t& algo) {
            return std::memcmp(&algo, &result.algo, sizeof(algo)) == 0;
          });
      seen.push_back(result.algo);
      if (!known) variants.push_back(variant);
    }
  }
  return variants;
}

}  // namespace concert::kernels::cuda
