#include <algorithm>
#include <bit>

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

// Bands of rows, whose sums wait in the workspace for their epilogue: whole tiles of the library's,
// but for the last. Each is two launches, some 5 us of the launching thread: 32 are enough for 4096
// rows of 48k columns (in 24 MiB), and more would keep others waiting.
constexpr uint32_t kBandTile = 128;
constexpr uint32_t kMaxBands = 32;

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
  return LaunchKernel(
      context.api.driver, context.gpu,
      args.dtype == Dtype::kFp8E4m3 ? context.kernels.fallback_gemm_fp8[args.gated][output]
                                    : context.kernels.fallback_gemm[args.gated][output],
      BlocksFor(tiles(args.m) * tiles(args.d_columns()) * args.batch, 1, kMaxFallbackBlocks),
      kFallbackGemmThreads, context.stream, args);
}

// `rows` rows of it from `first` on. REQUIRES: batch is 1.
GemmArgs BandOf(GemmArgs args, uint32_t first, uint32_t rows) {
  const uint64_t d_element = DtypeBytes(args.d_dtype);
  args.m = rows;
  args.a += first * args.lda * DtypeBytes(args.dtype);
  args.d += first * args.ldd * d_element;
  if (args.c != 0) args.c += first * args.ldc * d_element;
  if (args.a_scales_per_row) args.a_scales += first * sizeof(float);
  return args;
}

bool LibraryScales(const GemmArgs& args) { return args.dtype == Dtype::kFp8E4m3; }

// What the library makes of a band: alpha and fp8's scales times its products, in fp32, at `sums`.
GemmArgs SumsOf(GemmArgs band, Address sums) {
  if (!LibraryScales(band)) band.a_scales = band.w_scales = 0;
  band.d = sums, band.ldd = band.n, band.d_dtype = Dtype::kFp32;
  band.c = band.bias = 0, band.beta = 0;
  band.activation = Activation::kNone;
  band.residual = band.gated = band.interleaved = false;
  return band;
}

// What is left to do when SumsOf() is done.
GemmArgs RestOf(GemmArgs band) {
  band.alpha = 1;
  if (LibraryScales(band)) band.a_scales = band.w_scales = 0;
  return band;
}

// Of the workspace, for sums; the rest is the library's. A multiple of what it may want to be
// aligned to.
uint64_t SumsBytes(const LaunchContext& context) {
  return context.workspace_bytes / 4 * 3 / 256 * 256;
}

// Rows of a band; 0: they are too many bands.
uint32_t RowsOfBands(const LaunchContext& context, const GemmArgs& args) {
  if (args.batch != 1) return 0;
  const uint64_t fit = SumsBytes(context) / (args.n * uint64_t{sizeof(float)});
  if (fit >= args.m) return args.m;
  const uint64_t rows = fit >= kBandTile ? fit / kBandTile * kBandTile : std::bit_floor(fit);
  return rows * kMaxBands >= args.m ? static_cast<uint32_t>(rows) : 0;
}

// Whether the library made the sums of `band`, at the beginning of the workspace.
absl::StatusOr<bool> TrySums(const LaunchContext& context, const GemmArgs& band) {
  const GemmArgs args = SumsOf(band, context.workspace);
  LaunchContext rest = context;
  rest.workspace += SumsBytes(context);
  rest.workspace_bytes -= SumsBytes(context);
  const GemmKey key = GemmKey::Of(args, rest.sm_budget, rest.workspace_bytes);
  const MatmulOperands operands = MatmulOperands::Of(args);
  GemmEntry& entry = context.gemm_cache.Find(key);
  if (entry.path == GemmPath::kUnplanned) PlanGemm(rest, operands, entry);
  if (entry.path == GemmPath::kFallback) return false;
  const cublasStatus_t status = EnqueueMatmul(rest, operands, entry, context.stream);
  if (status == CUBLAS_STATUS_SUCCESS) return true;
  if (!IsRefusal(status)) {
    return context.api.cublaslt.ToStatus(status, "cublasLtMatmul", context.gpu);
  }
  entry.path = GemmPath::kFallback;
  return false;
}

absl::Status LaunchEpilogueOfSums(LaunchContext& context, const GemmArgs& band) {
  const SumsArgs kernel_args = {.gemm = RestOf(band),
                                .sums = reinterpret_cast<const float*>(context.workspace)};
  return LaunchKernel(
      context.api.driver, context.gpu, context.kernels.epilogue_of_sums[DtypeIndex(band.d_dtype)],
      BlocksFor(uint64_t{band.m} * band.d_columns(), kEpilogueThreads, kMaxEpilogueBlocks),
      kEpilogueThreads, context.stream, kernel_args);
}

// What EndsPlainly() does not hold for. C may be D: each element is read by the thread that writes
// it, when its sum is there.
absl::Status LaunchInBands(LaunchContext& context, const GemmArgs& args) {
  const uint32_t rows = RowsOfBands(context, args);
  if (rows == 0) return LaunchFallback(context, args);
  for (uint32_t first = 0; first < args.m; first += rows) {
    const GemmArgs band = BandOf(args, first, std::min(rows, args.m - first));
    const absl::StatusOr<bool> made = TrySums(context, band);
    if (!made.ok()) return made.status();
    if (!*made) return LaunchFallback(context, BandOf(args, first, args.m - first));
    if (absl::Status status = LaunchEpilogueOfSums(context, band); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LaunchGemm(LaunchContext& context, const Op& op) {
  const GemmArgs& args = op.gemm;
  if (!args.EndsPlainly()) return LaunchInBands(context, args);
  GemmKey key = GemmKey::Of(args, context.sm_budget, context.workspace_bytes);
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
