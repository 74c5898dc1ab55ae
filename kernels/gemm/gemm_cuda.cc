#include "kernels/cuda_api/launch_context.h"
#include "kernels/cuda_api/launch_kernel.h"
#include "kernels/gemm/gemm_cache.h"
#include "kernels/gemm/gemm_kernel_args.h"
#include "kernels/gemm/gemm_op.h"
#include "kernels/gemm/gemm_planner.h"

namespace concert::kernels::cuda {
namespace {

// Enough to fill any GPU; the kernels loop over the rest.
constexpr unsigned kMaxEpilogueBlocks = 2048;
constexpr unsigned kMaxFallbackBlocks = 1u << 20;

absl::Status LaunchEpilogue(LaunchContext& context, const GemmArgs& args) {
  const uint64_t width = 16 / DtypeBytes(args.d_dtype);
  const uint64_t stride_d = args.batch > 1 ? args.stride_d : 0;
  const bool wide = (args.d | args.bias) % 16 == 0 && args.n % width == 0 &&
                    args.ldd % width == 0 && stride_d % width == 0;
  const EpilogueArgs kernel_args = {.d = reinterpret_cast<void*>(args.d),
                                    .bias = reinterpret_cast<const void*>(args.bias),
                                    .ldd = args.ldd,
                                    .stride_d = stride_d,
                                    .m = args.m,
                                    .n = args.n,
                                    .batch = args.batch,
                                    .activation = static_cast<uint32_t>(args.activation)};
  const uint64_t packs = uint64_t{args.m} * args.batch * (args.n / (wide ? width : 1));
  return LaunchKernel(context.api.driver, context.gpu,
                      context.kernels.epilogue[DtypeIndex(args.d_dtype)][wide],
                      BlocksFor(packs, kEpilogueThreads, kMaxEpilogueBlocks), kEpilogueThreads,
                      context.stream, kernel_args);
}

absl::Status LaunchFallback(LaunchContext& context, const GemmArgs& args) {
  const auto tiles = [](uint64_t size) {
    return (size + kFallbackGemmTile - 1) / kFallbackGemmTile;
  };
  const int output = DtypeIndex(args.d_dtype);
  return LaunchKernel(context.api.driver, context.gpu,
                      args.dtype == Dtype::kFp8E4m3 ? context.kernels.fallback_gemm_fp8[output]
                                                    : context.kernels.fallback_gemm[output],
                      BlocksFor(tiles(args.m) * tiles(args.n) * args.batch, 1, kMaxFallbackBlocks),
                      kFallbackGemmThreads, context.stream, args);
}

}  // namespace

absl::Status LaunchGemm(LaunchContext& context, const Op& op) {
  const GemmArgs& args = op.gemm;
  GemmKey key = GemmKey::Of(args, context.sm_budget);
  key.variant = WantedVariant(context, args);
  const MatmulOperands operands = MatmulOperands::Of(args);
  GemmEntry& entry = context.gemm_cache.Find(key);
  if (entry.path == GemmPath::kUnplanned) PlanGemm(context, operands, entry);
  if (entry.path != GemmPath::kFallback) {
    const cublasStatus_t status = EnqueueMatmul(context, operands, entry, context.stream);
    if (status == CUBLAS_STATUS_SUCCESS) {
      return entry.path == GemmPath::kThenEpilogue ? LaunchEpilogue(context, args)
                                                   : absl::OkStatus();
    }
    // A refusal without a launch, which the heuristic should have foreseen: remember it.
    if (!IsRefusal(status)) {
      return context.api.cublaslt.ToStatus(status, "cublasLtMatmul", context.gpu);
    }
    entry.path = GemmPath::kFallback;
  }
  return LaunchFallback(context, args);
}

}  // namespace concert::kernels::cuda
