#include "kernels/gemm/gemm_heuristic.h"

#include <algorithm>

#include "kernels/cuda_api/data_type.h"

namespace concert::kernels::cuda {
namespace {

// Splits of K may meet in fp32 in the workspace only: the other schemes add in the output's dtype
// or in no fixed order.
constexpr uint32_t kReductionSchemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

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

// Fills in descriptors. Keeps the first error; every later step is then skipped.
class Describer {
 public:
  Describer(const CublasLt& lt, const GemmKey& key, GemmDescriptors& descriptors)
      : lt_(lt), key_(key), descriptors_(descriptors) {}

  // Row-major D = A * W^T is column-major D^T = W * A^T: cuBLASLt's A is W, transposed; its B is A.
  cublasStatus_t Describe(cublasLtEpilogue_t epilogue, int sm_target) {
    const cublasComputeType_t compute =
        key_.allow_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    status_ = lt_.cublasLtMatmulDescInit_internal(&descriptors_.matmul, sizeof(descriptors_.matmul),
                                                  compute, CUDA_R_32F);
    Set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (sm_target > 0) Set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, int32_t{sm_target});
    DescribeScales();
    InitLayout(descriptors_.w, key_.dtype, key_.k, key_.n, key_.ldw, key_.stride_w);
    InitLayout(descriptors_.a, key_.dtype, key_.k, key_.m, key_.lda, key_.stride_a);
    InitLayout(descriptors_.c, key_.d_dtype, key_.n, key_.m, key_.ldc, key_.stride_c);
    InitLayout(descriptors_.d, key_.d_dtype, key_.n, key_.m, key_.ldd, key_.stride_d);
    return status_;
  }

 private:
  bool ok() const { return status_ == CUBLAS_STATUS_SUCCESS; }

  template <typename T>
  void Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    if (!ok()) return;
    status_ =
        lt_.cublasLtMatmulDescSetAttribute(&descriptors_.matmul, attribute, &value, sizeof(value));
  }
  template <typename T>
  void Set(cublasLtMatrixLayoutOpaque_t& layout, cublasLtMatrixLayoutAttribute_t attribute,
           const T& value) {
    if (!ok()) return;
    status_ = lt_.cublasLtMatrixLayoutSetAttribute(&layout, attribute, &value, sizeof(value));
  }

  // cuBLASLt before 12.9 does not know the modes: they are named only where they are not default,
  // which they are for both operands or none (LibraryTakesFp8).
  void DescribeScales() {
    if (key_.a_scales != ScaleMode::kPerRow) return;
    constexpr int32_t kPerRow = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    Set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, kPerRow);
    Set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, kPerRow);
  }

  void InitLayout(cublasLtMatrixLayoutOpaque_t& layout, Dtype dtype, uint64_t rows,
                  uint64_t columns, uint64_t row_stride, uint64_t batch_stride) {
    if (!ok()) return;
    status_ =
        lt_.cublasLtMatrixLayoutInit_internal(&layout, sizeof(layout), DataTypeOf(dtype), rows,
                                              columns, static_cast<int64_t>(row_stride));
    if (key_.batch == 1) return;
    Set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(key_.batch));
    if (key_.pointer_array) {
      Set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_MODE,
          static_cast<uint32_t>(CUBLASLT_BATCH_MODE_POINTER_ARRAY));
    } else {
      Set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, static_cast<int64_t>(batch_stride));
    }
  }

  const CublasLt& lt_;
  const GemmKey& key_;
  GemmDescriptors& descriptors_;
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
};

cublasStatus_t Prefer(const CublasLt& lt, const GemmKey& key, uint64_t workspace_bytes,
                      cublasLtMatmulPreferenceOpaque_t& preference) {
  cublasStatus_t status = lt.cublasLtMatmulPreferenceInit_internal(&preference, sizeof(preference));
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    if (status != CUBLAS_STATUS_SUCCESS) return;
    status = lt.cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductionSchemes);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t{1} << key.align_w);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t{1} << key.align_a);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t{1} << key.align_c);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t{1} << key.align_d);
  return status;
}

}  // namespace

cublasStatus_t GemmHeuristic::Describe(const GemmKey& key, cublasLtEpilogue_t epilogue,
                                       int sm_target, GemmDescriptors& descriptors) const {
  if (key.dtype == Dtype::kFp8E4m3 && !LibraryTakesFp8(key)) return CUBLAS_STATUS_NOT_SUPPORTED;
  return Describer(lt_, key, descriptors).Describe(epilogue, sm_target);
}

int GemmHeuristic::Candidates(const GemmKey& key, GemmDescriptors& descriptors,
                              std::span<cublasLtMatmulHeuristicResult_t> results) const {
  cublasLtMatmulPreferenceOpaque_t preference;
  if (Prefer(lt_, key, workspace_bytes_, preference) != CUBLAS_STATUS_SUCCESS) return 0;
  int found = 0;
  const cublasStatus_t status = lt_.cublasLtMatmulAlgoGetHeuristic(
      handle_, &descriptors.matmul, &descriptors.w, &descriptors.a, &descriptors.c, &descriptors.d,
      &preference, static_cast<int>(results.size()), results.data(), &found);
  if (status != CUBLAS_STATUS_SUCCESS) return 0;
  int usable = 0;
  for (const cublasLtMatmulHeuristicResult_t& result : results.first(found)) {
    if (result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > workspace_bytes_) continue;
    results[usable++] = result;
  }
  return usable;
}

bool GemmHeuristic::Accepts(GemmDescriptors& descriptors, const cublasLtMatmulAlgo_t& algo) const {
  cublasLtMatmulHeuristicResult_t result = {};
  return lt_.cublasLtMatmulAlgoCheck(handle_, &descriptors.matmul, &descriptors.w, &descriptors.a,
                                     &descriptors.c, &descriptors.d, &algo,
                                     &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= workspace_bytes_;
}

}  // namespace concert::kernels::cuda
