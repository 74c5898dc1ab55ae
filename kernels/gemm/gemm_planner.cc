#include "kernels/gemm/gemm_planner.h"

#include <algorithm>
#include <array>
#include <span>

#include "kernels/cuda_api/grid_probe.h"
#include "kernels/gemm/gemm_heuristic.h"
#include "kernels/gemm/gemm_variants.h"

namespace concert::kernels::cuda {
namespace {

using Results = std::span<const cublasLtMatmulHeuristicResult_t>;

// Verifying a grid takes tens of microseconds on the launching thread.
constexpr size_t kMaxProbes = 8;

bool IsWanted(const policies::Variant& variant) {
  return variant.source == policies::Variant::Source::kCublasLt;
}

// Sets an address that stands in a description and not among a launch's arguments. 0: the
// description was made without it.
cublasStatus_t SetPointer(const CublasLt& lt, GemmDescriptors& descriptors,
                          cublasLtMatmulDescAttributes_t attribute, Address address) {
  if (address == 0) return CUBLAS_STATUS_SUCCESS;
  return lt.cublasLtMatmulDescSetAttribute(&descriptors.matmul, attribute, &address,
                                           sizeof(address));
}

// cuBLASLt's A is W, and its B is A.
cublasStatus_t SetScales(const CublasLt& lt, const MatmulOperands& operands,
                         GemmDescriptors& descriptors) {
  const cublasStatus_t status =
      SetPointer(lt, descriptors, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, operands.w_scales);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  return SetPointer(lt, descriptors, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, operands.a_scales);
}

// Plans one entry.
class Planner {
 public:
  Planner(LaunchContext& context, const MatmulOperands& operands, GemmEntry& entry)
      : context_(context),
        heuristic_(context.api.cublaslt, context.cublaslt, context.workspace_bytes),
        operands_(operands),
        entry_(entry) {}

  void Plan() {
    const GemmKey& key = entry_.key;
    const bool plain = key.activation == Activation::kNone && !key.has_bias;
    const bool fusable = key.activation != Activation::kSilu && (!key.has_bias || key.bias_aligned);
    if (fusable && Choose(FusedEpilogue(), GemmPath::kFused)) return;
    if (!plain && Choose(CUBLASLT_EPILOGUE_DEFAULT, GemmPath::kThenEpilogue)) return;
    entry_.path = GemmPath::kFallback;
  }

 private:
  cublasLtEpilogue_t FusedEpilogue() const {
    const bool bias = entry_.key.has_bias;
    switch (entry_.key.activation) {
      case Activation::kRelu:
        return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
      case Activation::kGelu:
        return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
      case Activation::kNone:
      case Activation::kSilu:
        break;
    }
    return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }

  // Whether cuBLASLt has an algorithm with this epilogue; stores it and `path`.
  bool Choose(cublasLtEpilogue_t epilogue, GemmPath path) {
    entry_.path = path;
    if (ChooseVariant(epilogue) || ChooseDefault(epilogue)) return true;
    entry_.path = GemmPath::kUnplanned;
    return false;
  }

  bool ChooseVariant(cublasLtEpilogue_t epilogue) {
    const policies::Variant& wanted = entry_.key.variant;
    const int budget = entry_.key.sm_budget;
    const bool in_budget = budget == 0 || (wanted.sm_budget != 0 && wanted.sm_budget <= budget);
    if (!IsWanted(wanted) || !in_budget) return false;
    std::array<cublasLtMatmulHeuristicResult_t, kMaxVariants> results = {};
    const Results offered = Ask(epilogue, wanted.sm_budget, results);
    for (size_t i = 0; i < offered.size(); ++i) {
      const cublasLtMatmulAlgo_t& algo = offered[i].algo;
      if (DescribeAlgo(context_.api.cublaslt, algo, entry_.key.dtype, wanted.sm_budget) != wanted) {
        continue;
      }
      if (!heuristic_.Accepts(entry_.descriptors, algo)) return false;
      Take(offered.subspan(i));
      return true;
    }
    return false;
  }

  bool ChooseDefault(cublasLtEpilogue_t epilogue) {
    const int budget = entry_.key.sm_budget;
    std::array<cublasLtMatmulHeuristicResult_t, kMaxProbes> results = {};
    // Only the search for a grid within the budget looks past the first.
    const Results offered =
        Ask(epilogue, budget, std::span(results).first(budget > 0 ? kMaxProbes : 1));
    if (offered.empty()) return false;
    Take(offered);
    if (IsWanted(entry_.key.variant)) context_.gemm_cache.CountStale();
    return true;
  }

  Results Ask(cublasLtEpilogue_t epilogue, int sm_target,
              std::span<cublasLtMatmulHeuristicResult_t> results) {
    cublasStatus_t status =
        heuristic_.Describe(entry_.key, epilogue, sm_target, entry_.descriptors);
    if (status != CUBLAS_STATUS_SUCCESS) return {};
    // For the heuristic to see; every launch sets its own.
    status = SetScales(context_.api.cublaslt, operands_, entry_.descriptors);
    if (status != CUBLAS_STATUS_SUCCESS) return {};
    return results.first(heuristic_.Candidates(entry_.key, entry_.descriptors, results));
  }

  // Takes the first of `offered`, or, with a budget, the first whose grid does not exceed it.
  void Take(Results offered) {
    const uint32_t budget = entry_.key.sm_budget;
    entry_.algo = offered.front().algo;
    if (budget == 0) return;
    const uint32_t first_blocks = entry_.blocks = Blocks();
    if (entry_.blocks <= budget) return;
    for (const auto& candidate : offered.subspan(1, std::min(offered.size(), kMaxProbes) - 1)) {
      entry_.algo = candidate.algo;
      entry_.blocks = Blocks();
      if (entry_.blocks != 0 && entry_.blocks <= budget) return;
    }
    entry_.algo = offered.front().algo;
    entry_.blocks = first_blocks;
  }

  // Of the entry's algorithm; 0: unknown.
  uint32_t Blocks() {
    GridProbe probe(context_.api.driver, context_.probe_stream);
    if (!probe.capturing()) return 0;
    const cublasStatus_t status = EnqueueMatmul(context_, operands_, entry_, context_.probe_stream);
    return status == CUBLAS_STATUS_SUCCESS ? probe.Blocks() : 0;
  }

  LaunchContext& context_;
  const GemmHeuristic heuristic_;
  const MatmulOperands& operands_;
  GemmEntry& entry_;
};

}  // namespace

policies::Variant WantedVariant(const LaunchContext& context, const GemmArgs& args) {
  if (context.variant != nullptr) {
    return IsWanted(*context.variant) ? *context.variant : policies::Variant();
  }
  // Problems are tuned without tf32, which has kernels of its own.
  if (context.tuned == nullptr || (args.dtype == Dtype::kFp32 && args.allow_tf32)) return {};
  const policies::TunedRow* row =
      context.tuned->Find({.problem = {args.m, args.n, args.k, args.batch, args.dtype},
                           .sm_budget = static_cast<uint16_t>(context.sm_budget),
                           .degree = context.degree,
                           .form = context.form});
  return row != nullptr && IsWanted(row->variant) ? row->variant : policies::Variant();
}

void PlanGemm(LaunchContext& context, const MatmulOperands& operands, GemmEntry& entry) {
  Planner(context, operands, entry).Plan();
}

cublasStatus_t EnqueueMatmul(const LaunchContext& context, const MatmulOperands& operands,
                             GemmEntry& entry, CUstream stream) {
  const CublasLt& lt = context.api.cublaslt;
  GemmDescriptors& matmul = entry.descriptors;
  cublasStatus_t status = SetScales(lt, operands, matmul);
  if (status == CUBLAS_STATUS_SUCCESS && entry.path == GemmPath::kFused) {
    status = SetPointer(lt, matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  }
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const auto pointer = [](Address address) { return reinterpret_cast<void*>(address); };
  return lt.cublasLtMatmul(context.cublaslt, &matmul.matmul, &operands.alpha, pointer(operands.w),
                           &matmul.w, pointer(operands.a), &matmul.a, &operands.beta,
                           pointer(operands.c), &matmul.c, pointer(operands.d), &matmul.d,
                           &entry.algo, pointer(context.workspace), context.workspace_bytes,
                           stream);
}

}  // namespace concert::kernels::cuda
