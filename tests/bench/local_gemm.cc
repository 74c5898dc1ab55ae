#include "tests/bench/local_gemm.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/cuda_api/data_type.h"

namespace concert::bench::local {
namespace {

using policies::Degree;

// The heuristic's list is sorted by its own estimate, and what wins in the end was among the first
// 24 wherever it was looked at.
constexpr int kCandidates = 24;
// In a graph, so that the launch does not count; of each copy at least two, one behind the other.
// So many more that a replay takes kReplay, which is long against its ends.
constexpr int kTimedGemms = 16, kTimedGemmsPerCopy = 2;
constexpr double kReplayUs = 500, kFlopsPerUs = 700e6;
constexpr int kTimedReplays = 3;

// Alone the first of the heuristic's list. Of co-run sets also those for a half and a quarter of
// the SMs, which leave room: a third each, as concert's tuner has it
// (kernels/gemm/gemm_variants.h).
absl::StatusOr<std::vector<LtGemm>> CandidatesFor(const Context& context, const GemmShape& shape,
                                                  Degree degree) {
  if (degree == Degree::kSolo)
    return LtGemm::Candidates(context, shape, /*sm_target=*/0, kCandidates);
  std::vector<LtGemm> candidates;
  absl::Status why;
  for (const int sm_target : {0, context.sm_count / 2, context.sm_count / 4}) {
    const auto some = LtGemm::Candidates(context, shape, sm_target, kCandidates / 3);
    why.Update(some.status());
    if (some.ok()) candidates.insert(candidates.end(), some->begin(), some->end());
  }
  if (candidates.empty()) return why;
  return candidates;
}

// GEMMs like this one, `copies` of them side by side. Their operands are those of all of the batch
// that have its shape, set by set, so that copies share as little as there is room for.
std::vector<GraphLaunch> CopiesOf(const GemmWorkload& workload, int gemm, int copies) {
  const auto extents = [&](int g) {
    const GemmShape& shape = workload.shape(g);
    return std::tuple(shape.m, shape.n, shape.k, shape.dtype);
  };
  std::vector<int> alike;
  for (int other = 0; other < workload.gemms(); ++other) {
    if (extents(other) == extents(gemm)) alike.push_back(other);
  }
  const double most = std::max(1.0, kReplayUs * kFlopsPerUs / workload.shape(gemm).flops());
  const int count =
      std::max(static_cast<int>(std::min<double>(kTimedGemms, most)), kTimedGemmsPerCopy * copies);
  std::vector<GraphLaunch> launches;
  for (int i = 0; i < count; ++i) {
    const int sets = workload.sets();
    launches.push_back({i % sets, alike[i / sets % alike.size()], i % copies, std::nullopt});
  }
  return launches;
}

}  // namespace

absl::StatusOr<LtGemm> LtGemm::Plan(const Context& context, const GemmShape& shape) {
  absl::StatusOr<std::vector<LtGemm>> candidates = Candidates(context, shape, /*sm_target=*/0, 1);
  if (!candidates.ok()) return candidates.status();
  return candidates->front();
}

absl::StatusOr<std::vector<LtGemm>> LtGemm::Candidates(const Context& context,
                                                       const GemmShape& shape, int sm_target,
                                                       int count) {
  LtGemm gemm;
  const auto& lt = context.api.cublaslt;
  const cudaDataType_t type = kernels::cuda::DataTypeOf(shape.dtype);
  const cudaDataType_t d_type = kernels::cuda::DataTypeOf(shape.d_dtype());
  gemm.has_scales_ = shape.has_scales();
  const cublasOperation_t transpose = CUBLAS_OP_T;
  cublasLtMatmulPreferenceOpaque_t preference;
  lt.cublasLtMatmulDescInit_internal(&gemm.matmul_, sizeof(gemm.matmul_), CUBLAS_COMPUTE_32F,
                                     CUDA_R_32F);
  lt.cublasLtMatmulDescSetAttribute(&gemm.matmul_, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                    sizeof(transpose));
  if (sm_target > 0) {
    const int32_t target = sm_target;
    lt.cublasLtMatmulDescSetAttribute(&gemm.matmul_, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &target,
                                      sizeof(target));
  }
  lt.cublasLtMatrixLayoutInit_internal(&gemm.w_, sizeof(gemm.w_), type, shape.k, shape.n, shape.k);
  lt.cublasLtMatrixLayoutInit_internal(&gemm.a_, sizeof(gemm.a_), type, shape.k, shape.m, shape.k);
  lt.cublasLtMatrixLayoutInit_internal(&gemm.d_, sizeof(gemm.d_), d_type, shape.n, shape.m,
                                       shape.n);
  lt.cublasLtMatmulPreferenceInit_internal(&preference, sizeof(preference));
  lt.cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                          &kWorkspaceBytes, sizeof(kWorkspaceBytes));
  std::vector<cublasLtMatmulHeuristicResult_t> results(count);
  int found = 0;
  const cublasStatus_t status = lt.cublasLtMatmulAlgoGetHeuristic(
      context.cublaslt, &gemm.matmul_, &gemm.w_, &gemm.a_, &gemm.d_, &gemm.d_, &preference, count,
      results.data(), &found);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
    return absl::NotFoundError(
        absl::StrCat("cuBLASLt has no kernel for ", shape.m, "x", shape.n, "x", shape.k));
  }
  std::vector<LtGemm> candidates;
  for (int i = 0; i < found; ++i) {
    gemm.algorithm_ = results[i].algo;
    candidates.push_back(gemm);
  }
  return candidates;
}

absl::Status LtGemm::Enqueue(const Context& context, uint64_t memory, const GemmPlace& place,
                             int stream) const {
  const float one = 1, zero = 0;
  const auto pointer = [&](uint64_t offset) { return reinterpret_cast<void*>(memory + offset); };
  const auto& lt = context.api.cublaslt;
  // cuBLASLt changes none of the opaque structures; its C API takes some of them without const.
  auto& self = const_cast<LtGemm&>(*this);
  cublasLtMatmulDescOpaque_t matmul = matmul_;  // read before cublasLtMatmul returns
  if (has_scales_) {
    const void* const w_scale = pointer(place.w_scales);
    const void* const a_scale = pointer(place.a_scales);
    lt.cublasLtMatmulDescSetAttribute(&matmul, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &w_scale,
                                      sizeof(w_scale));
    lt.cublasLtMatmulDescSetAttribute(&matmul, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &a_scale,
                                      sizeof(a_scale));
  }
  return lt.ToStatus(lt.cublasLtMatmul(context.cublaslt, &matmul, &one, pointer(place.w), &self.w_,
                                       pointer(place.a), &self.a_, &zero, pointer(place.d),
                                       &self.d_, pointer(place.d), &self.d_, &algorithm_,
                                       reinterpret_cast<void*>(context.workspaces[stream]),
                                       kWorkspaceBytes, context.streams[stream]),
                     "cublasLtMatmul", 0);
}

absl::Status EnqueueAll(const Context& context, const GemmWorkload& workload, uint64_t memory,
                        int first_set, const std::vector<GraphLaunch>& launches,
                        const std::vector<LtGemm>& kernels) {
  const int streams = StreamCount(launches);
  absl::Status status = context.Fork(streams);
  for (size_t i = 0; i < launches.size() && status.ok(); ++i) {
    const GraphLaunch& launch = launches[i];
    const int set = (first_set + launch.batch) % workload.sets();
    status = kernels[i].Enqueue(context, memory, workload.place(set, launch.gemm), launch.stream);
  }
  // In any case: a capture ends with all streams joined.
  const absl::Status joined = context.Join(streams);
  return status.ok() ? joined : status;
}

absl::StatusOr<LtGemm> LtTuner::Fastest(const Context& context, const GemmWorkload& workload,
                                        uint64_t memory, int gemm, Degree degree) {
  const GemmShape& shape = workload.shape(gemm);
  const Key key(shape.m, shape.n, shape.k, shape.dtype, degree);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  absl::StatusOr<std::vector<LtGemm>> candidates = CandidatesFor(context, shape, degree);
  if (!candidates.ok()) return candidates.status();

  const std::vector<GraphLaunch> launches = CopiesOf(workload, gemm, CountOf(degree));
  const LtGemm* fastest = &candidates->front();
  double fastest_us = std::numeric_limits<double>::infinity();
  for (const LtGemm& candidate : *candidates) {
    const std::vector<LtGemm> kernels(launches.size(), candidate);
    absl::StatusOr<Graph> graph = Graph::Capture(context, [&] {
      return EnqueueAll(context, workload, memory, /*first_set=*/0, launches, kernels);
    });
    if (!graph.ok()) continue;  // this kernel does not take these operands after all
    const absl::StatusOr<double> time_us = graph->Time(kTimedReplays);
    if (!time_us.ok()) return time_us.status();
    if (*time_us < fastest_us) {
      fastest = &candidate;
      fastest_us = *time_us;
    }
  }
  return known_.emplace(key, *fastest).first->second;
}

}  // namespace concert::bench::local
