#include <algorithm>
#include <initializer_list>

#include "kernels/cuda_api/data_type.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/cuda_api/launch_kernel.h"
#include "kernels/gemm/gemm_cache.h"
#include "kernels/gemm/gemm_kernel_args.h"
#include "kernels/gemm/gemm_op.h"

namespace concert::kernels::cuda {
namespace {

// Enough to fill any GPU; the kernels loop over the rest.
constexpr unsigned kMaxEpilogueBlocks = 2048;
constexpr unsigned kMaxFallbackBlocks = 1u << 20;

// Splits of K may meet in fp32 in the workspace only: the other schemes add in the output's dtype
// or in no fixed order.
constexpr uint32_t kReductionSchemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

void* Pointer(Address address) { return reinterpret_cast<void*>(address); }

// What cuBLASLt asks of fp8 operands (its documentation, "Floating Point 8-bit Data Types Usage"):
// addresses and rows that are multiples of 16 bytes. Vectors of scales exist for both operands or
// none; in a batch they would be one vector per member, where ours are one for all.
bool LibraryTakesFp8(const GemmKey& key) {
  constexpr uint8_t kAlignLog2 = 4;
  const uint64_t output_bytes = DtypeBytes(key.d_dtype);
  const bool aligned = std::min({key.align_a, key.align_w, key.align_c, key.align_d}) >= kAlignLog2;
  const bool whole = key.k % 16 == 0 && key.lda % 16 == 0 && key.ldw % 16 == 0 &&
                     key.ldc * output_bytes % 16 == 0 && key.ldd * output_bytes % 16 == 0;
  const bool a_rows = key.a_scales == ScaleMode::kPerRow;
  const bool w_rows = key.w_scales == ScaleMode::kPerRow;
  return aligned && whole && a_rows == w_rows &&
         (!a_rows || (key.batch == 1 && key.scales_aligned));
}

// Plans one entry. Keeps the first error; every later step is then skipped.
class Planner {
 public:
  // `args`: what the entry's key was made of.
  Planner(const LaunchContext& context, const GemmArgs& args, GemmEntry& entry)
      : lt_(context.api.cublaslt), context_(context), args_(args), entry_(entry) {}

  void Plan() {
    const GemmKey& key = entry_.key;
    const bool plain = key.activation == Activation::kNone && !key.has_bias;
    const bool fusable = key.activation != Activation::kSilu && (!key.has_bias || key.bias_aligned);
    if (key.dtype == Dtype::kFp8E4m3 && !LibraryTakesFp8(key)) {
      entry_.path = GemmPath::kFallback;
    } else if (fusable && Choose(FusedEpilogue())) {
      entry_.path = GemmPath::kFused;
    } else if (!plain && Choose(CUBLASLT_EPILOGUE_DEFAULT)) {
      entry_.path = GemmPath::kThenEpilogue;
    } else {
      entry_.path = GemmPath::kFallback;
    }
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

  bool ok() const { return status_ == CUBLAS_STATUS_SUCCESS; }

  template <typename T>
  void Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    if (ok())
      status_ =
          lt_.cublasLtMatmulDescSetAttribute(&entry_.matmul, attribute, &value, sizeof(value));
  }
  template <typename T>
  void Set(cublasLtMatrixLayoutOpaque_t& layout, cublasLtMatrixLayoutAttribute_t attribute,
           const T& value) {
    if (ok())
      status_ = lt_.cublasLtMatrixLayoutSetAttribute(&layout, attribute, &value, sizeof(value));
  }
  template <typename T>
  void Set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    if (ok())
      status_ =
          lt_.cublasLtMatmulPreferenceSetAttribute(&preference_, attribute, &value, sizeof(value));
  }

  void InitLayout(cublasLtMatrixLayoutOpaque_t& layout, Dtype dtype, uint64_t rows,
                  uint64_t columns, uint64_t row_stride, uint64_t batch_stride) {
    if (ok()) {
      status_ =
          lt_.cublasLtMatrixLayoutInit_internal(&layout, sizeof(layout), DataTypeOf(dtype), rows,
                                                columns, static_cast<int64_t>(row_stride));
    }
    if (entry_.key.batch == 1) return;
    Set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(entry_.key.batch));
    Set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, static_cast<int64_t>(batch_stride));
  }

  // Modes and, for the heuristic to see, addresses of the scales; every launch sets its own.
  void DescribeScales() {
    const GemmKey& key = entry_.key;
    // cuBLASLt before 12.9 does not know the modes: they are named only where they are not default.
    if (key.a_scales == ScaleMode::kPerRow) {
      constexpr int32_t kPerRow = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
      Set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, kPerRow);
      Set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, kPerRow);
    }
    if (key.w_scales != ScaleMode::kNone) Set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, args_.w_scales);
    if (key.a_scales != ScaleMode::kNone) Set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, args_.a_scales);
  }

  // Row-major D = A * W^T is column-major D^T = W * A^T: cuBLASLt's A is W, transposed; its B is A.
  void Describe(cublasLtEpilogue_t epilogue) {
    const GemmKey& key = entry_.key;
    const cublasComputeType_t compute =
        key.allow_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    status_ = lt_.cublasLtMatmulDescInit_internal(&entry_.matmul, sizeof(entry_.matmul), compute,
                                                  CUDA_R_32F);
    Set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (key.sm_budget > 0)
      Set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, static_cast<int32_t>(key.sm_budget));
    DescribeScales();
    InitLayout(entry_.w, key.dtype, key.k, key.n, key.ldw, key.stride_w);
    InitLayout(entry_.a, key.dtype, key.k, key.m, key.lda, key.stride_a);
    InitLayout(entry_.c, key.d_dtype, key.n, key.m, key.ldc, key.stride_c);
    InitLayout(entry_.d, key.d_dtype, key.n, key.m, key.ldd, key.stride_d);
  }

  void Prefer() {
    const GemmKey& key = entry_.key;
    if (ok())
      status_ = lt_.cublasLtMatmulPreferenceInit_internal(&preference_, sizeof(preference_));
    Set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{context_.workspace_bytes});
    Set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductionSchemes);
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t{1} << key.align_w);
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t{1} << key.align_a);
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t{1} << key.align_c);
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t{1} << key.align_d);
  }

  // Whether cuBLASLt has an algorithm with this epilogue; stores it.
  bool Choose(cublasLtEpilogue_t epilogue) {
    Describe(epilogue);
    Prefer();
    if (!ok()) return false;
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    status_ =
        lt_.cublasLtMatmulAlgoGetHeuristic(context_.cublaslt, &entry_.matmul, &entry_.w, &entry_.a,
                                           &entry_.c, &entry_.d, &preference_, 1, &best, &found);
    if (!ok() || found == 0 || best.state != CUBLAS_STATUS_SUCCESS) return false;
    entry_.algo = best.algo;
    return true;
  }

  const CublasLt& lt_;
  const LaunchContext& context_;
  const GemmArgs& args_;
  GemmEntry& entry_;
  cublasLtMatmulPreferenceOpaque_t preference_;
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
};

// The addresses that stand in the description of a GEMM and not among its arguments.
cublasStatus_t SetPointers(const CublasLt& lt, const GemmArgs& args, GemmEntry& entry) {
  struct Attribute {
    bool used;
    cublasLtMatmulDescAttributes_t name;
    Address address;
  };
  for (const Attribute& attribute : {
           Attribute{entry.path == GemmPath::kFused && args.bias != 0,
                     CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias},
           Attribute{args.w_scales != 0, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, args.w_scales},
           Attribute{args.a_scales != 0, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, args.a_scales},
       }) {
    if (!attribute.used) continue;
    const cublasStatus_t status = lt.cublasLtMatmulDescSetAttribute(
        &entry.matmul, attribute.name, &attribute.address, sizeof(attribute.address));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t LaunchLibrary(LaunchContext& context, const GemmArgs& args, GemmEntry& entry) {
  const CublasLt& lt = context.api.cublaslt;
  const cublasStatus_t status = SetPointers(lt, args, entry);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  return lt.cublasLtMatmul(
      context.cublaslt, &entry.matmul, &args.alpha, Pointer(args.w), &entry.w, Pointer(args.a),
      &entry.a, &args.beta, Pointer(entry.key.has_c ? args.c : args.d), &entry.c, Pointer(args.d),
      &entry.d, &entry.algo, Pointer(context.workspace), context.workspace_bytes, context.stream);
}

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
  const FallbackGemmArgs kernel_args = {.a = Pointer(args.a),
                                        .w = Pointer(args.w),
                                        .c = Pointer(args.beta != 0.0f ? args.c : 0),
                                        .bias = Pointer(args.bias),
                                        .a_scales = static_cast<float*>(Pointer(args.a_scales)),
                                        .w_scales = static_cast<float*>(Pointer(args.w_scales)),
                                        .d = Pointer(args.d),
                                        .lda = args.lda,
                                        .ldw = args.ldw,
                                        .ldc = args.ldc,
                                        .ldd = args.ldd,
                                        .stride_a = args.stride_a,
                                        .stride_w = args.stride_w,
                                        .stride_c = args.stride_c,
                                        .stride_d = args.stride_d,
                                        .m = args.m,
                                        .n = args.n,
                                        .k = args.k,
                                        .batch = args.batch,
                                        .a_scale_step = args.a_scales_per_row ? 1u : 0u,
                                        .w_scale_step = args.w_scales_per_row ? 1u : 0u,
                                        .alpha = args.alpha,
                                        .beta = args.beta,
                                        .activation = static_cast<uint32_t>(args.activation)};
  const auto tiles = [](uint64_t size) {
    return (size + kFallbackGemmTile - 1) / kFallbackGemmTile;
  };
  const int output = DtypeIndex(args.d_dtype);
  return LaunchKernel(context.api.driver, context.gpu,
                      args.dtype == Dtype::kFp8E4m3 ? context.kernels.fallback_gemm_fp8[output]
                                                    : context.kernels.fallback_gemm[output],
                      BlocksFor(tiles(args.m) * tiles(args.n) * args.batch, 1, kMaxFallbackBlocks),
                      kFallbackGemmThreads, context.stream, kernel_args);
}

}  // namespace

absl::Status LaunchGemm(LaunchContext& context, const Op& op) {
  const GemmArgs& args = op.gemm;
  GemmEntry& entry = context.gemm_cache.Find(GemmKey::Of(args, context.sm_budget));
  if (entry.path == GemmPath::kUnplanned) Planner(context, args, entry).Plan();
  if (entry.path != GemmPath::kFallback) {
    const cublasStatus_t status = LaunchLibrary(context, args, entry);
    if (status == CUBLAS_STATUS_SUCCESS) {
      return entry.path == GemmPath::kThenEpilogue ? LaunchEpilogue(context, args)
                                                   : absl::OkStatus();
    }
    // A refusal without a launch, which the heuristic should have foreseen: remember it.
    const bool refused =
        status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
    if (!refused) return context.api.cublaslt.ToStatus(status, "cublasLtMatmul", context.gpu);
    entry.path = GemmPath::kFallback;
  }
  return LaunchFallback(context, args);
}

}  // namespace concert::kernels::cuda
