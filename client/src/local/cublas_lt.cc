#include "client/src/local/cublas_lt.h"

#include <dlfcn.h>

#include "client/src/failure.h"

namespace concert::client {
namespace {

bool DataType(uint32_t dtype, cudaDataType_t* type) {
  switch (dtype) {
    case CONCERT_BF16:
      *type = CUDA_R_16BF;
      return true;
    case CONCERT_FP16:
      *type = CUDA_R_16F;
      return true;
    case CONCERT_FP32:
      *type = CUDA_R_32F;
      return true;
    case CONCERT_FP8_E4M3:
      *type = CUDA_R_8F_E4M3;
      return true;
  }
  return false;
}

// The types of A and W and of C, D and bias.
int DataTypes(const concert_gemm& op, cudaDataType_t* type, cudaDataType_t* d_type,
              concert_error* error) {
  if (!DataType(op.dtype, type)) {
    return Fail(error, CONCERT_INVALID_ARGUMENT, "dtype is %u; the highest is %d", op.dtype,
                CONCERT_FP8_E4M3);
  }
  const bool fp8 = op.dtype == CONCERT_FP8_E4M3;
  const bool d_is_16_bit = op.d_dtype == CONCERT_BF16 || op.d_dtype == CONCERT_FP16;
  if (fp8 ? !d_is_16_bit : op.d_dtype != 0 && op.d_dtype != op.dtype) {
    return Fail(error, CONCERT_INVALID_ARGUMENT,
                "d_dtype is %u; it must be bf16 (1) or fp16 (2) for fp8, and 0 or dtype otherwise",
                op.d_dtype);
  }
  DataType(fp8 ? op.d_dtype : op.dtype, d_type);
  return CONCERT_OK;
}

// fp8 only where cuBLASLt takes it: the heuristic does not see addresses, and a kernel that finds
// them misaligned takes the process's context down.
int CheckFp8(const concert_gemm& op, const GemmAddresses& addresses, concert_error* error) {
  const bool scaled = op.a_scales.buffer != nullptr || op.w_scales.buffer != nullptr;
  if (op.dtype != CONCERT_FP8_E4M3) {
    return scaled ? Fail(error, CONCERT_INVALID_ARGUMENT,
                         "scales are given, but dtype is %u; only operands in fp8_e4m3 have scales",
                         op.dtype)
                  : CONCERT_OK;
  }
  const bool a_rows = (op.flags & CONCERT_GEMM_A_SCALES_PER_ROW) != 0;
  const bool w_rows = (op.flags & CONCERT_GEMM_W_SCALES_PER_ROW) != 0;
  if (a_rows != w_rows || (a_rows && op.batch > 1)) {
    return Fail(error, CONCERT_UNIMPLEMENTED,
                "one scale per row is available in CONCERT_FALLBACK=cublas for both A and W, "
                "without a batch; start concertd");
  }
  const CUdeviceptr vectors = a_rows ? addresses.a_scales | addresses.w_scales : 0;
  if ((addresses.a | addresses.w | addresses.c | addresses.d | addresses.bias | vectors) % 16 ==
      0) {
    return CONCERT_OK;
  }
  return Fail(error, CONCERT_UNIMPLEMENTED,
              "fp8 operands must lie at multiples of 16 bytes in CONCERT_FALLBACK=cublas; start "
              "concertd");
}

bool Epilogue(uint32_t activation, bool bias, cublasLtEpilogue_t* epilogue) {
  switch (activation) {
    case CONCERT_ACTIVATION_NONE:
      *epilogue = bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
      return true;
    case CONCERT_ACTIVATION_RELU:
      *epilogue = bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
      return true;
    case CONCERT_ACTIVATION_GELU:
      *epilogue = bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
      return true;
  }
  return false;
}

int CheckLt(cublasStatus_t status, const char* call, concert_error* error) {
  if (status == CUBLAS_STATUS_SUCCESS) return CONCERT_OK;
  const int code = status == CUBLAS_STATUS_NOT_SUPPORTED ? CONCERT_UNIMPLEMENTED : CONCERT_INTERNAL;
  return Fail(error, code, "%s failed with cublasStatus_t %d", call, static_cast<int>(status));
}

}  // namespace

// cuBLASLt is column-major, concert row-major: the same bytes read by columns are the transposed
// matrix, so D^T[n,m] = W[n,k] * A^T[k,m] is computed. W's bytes are a (k x n) column-major matrix,
// to be transposed.
struct CublasLt::Problem {
  cublasLtMatmulDesc_t matmul = nullptr;
  cublasLtMatrixLayout_t w = nullptr, a = nullptr, c = nullptr, d = nullptr;
};

CublasLt::CublasLt() {
  void* handle = nullptr;
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}) {
    handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) break;
  }
  if (handle == nullptr) {
    code_ = Fail(&error_, CONCERT_UNAVAILABLE, "cannot open cuBLASLt: %s", dlerror());
    return;
  }
#define X(name)                                                                          \
  name##_ = reinterpret_cast<decltype(name##_)>(dlsym(handle, #name));                   \
  if (name##_ == nullptr && code_ == CONCERT_OK) {                                       \
    code_ = Fail(&error_, CONCERT_UNAVAILABLE, "the cuBLASLt library has no %s", #name); \
  }
  CONCERT_CUBLASLT_FUNCTIONS(X)
#undef X
}

int CublasLt::Load(const CublasLt** lt, concert_error* error) {
  static const CublasLt library;  // a handle to a shared library is a property of the process
  if (library.code_ != CONCERT_OK) {
    return Fail(error, library.code_, "%s", library.error_.message);
  }
  *lt = &library;
  return CONCERT_OK;
}

int CublasLt::CreateHandle(cublasLtHandle_t* handle, concert_error* error) const {
  return CheckLt(cublasLtCreate_(handle), "cublasLtCreate", error);
}

void CublasLt::DestroyHandle(cublasLtHandle_t handle) const { cublasLtDestroy_(handle); }

cublasStatus_t CublasLt::Layout(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                                uint64_t cols, uint64_t ld, uint32_t batch, uint64_t stride) const {
  cublasStatus_t status =
      cublasLtMatrixLayoutCreate_(layout, type, rows, cols, static_cast<int64_t>(ld));
  if (status != CUBLAS_STATUS_SUCCESS || batch <= 1) return status;
  const auto count = static_cast<int32_t>(batch);
  const auto offset = static_cast<int64_t>(stride);
  status = cublasLtMatrixLayoutSetAttribute_(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                             sizeof(count));
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  return cublasLtMatrixLayoutSetAttribute_(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                           &offset, sizeof(offset));
}

// cuBLASLt's A is W and its B is A.
cublasStatus_t CublasLt::DescribeScales(const concert_gemm& op, const GemmAddresses& addresses,
                                        const Problem& p) const {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    if (status != CUBLAS_STATUS_SUCCESS) return;
    status = cublasLtMatmulDescSetAttribute_(p.matmul, attribute, &value, sizeof(value));
  };
  // cuBLASLt before 12.9 does not know the modes: they are named only where they are not default.
  if ((op.flags & CONCERT_GEMM_A_SCALES_PER_ROW) != 0) {
    constexpr int32_t kPerRow = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, kPerRow);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, kPerRow);
  }
  if (addresses.w_scales != 0) set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, addresses.w_scales);
  if (addresses.a_scales != 0) set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, addresses.a_scales);
  return status;
}

int CublasLt::Describe(const concert_gemm& op, const GemmAddresses& addresses, Problem* p,
                       concert_error* error) const {
  cudaDataType_t type, d_type;
  cublasLtEpilogue_t epilogue;
  if (int code = DataTypes(op, &type, &d_type, error)) return code;
  if (int code = CheckFp8(op, addresses, error)) return code;
  if (!Epilogue(op.activation, addresses.bias != 0, &epilogue)) {
    return Fail(error, CONCERT_UNIMPLEMENTED,
                "activation %u is not available in CONCERT_FALLBACK=cublas, which has none, relu "
                "and gelu; start concertd",
                op.activation);
  }
  const bool tf32 = op.dtype == CONCERT_FP32 && (op.flags & CONCERT_GEMM_TF32) != 0;
  const cublasComputeType_t compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  const cublasOperation_t transpose = CUBLAS_OP_T;
  cublasStatus_t status = cublasLtMatmulDescCreate_(&p->matmul, compute, CUDA_R_32F);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const void* value, size_t size) {
    if (status != CUBLAS_STATUS_SUCCESS) return;
    status = cublasLtMatmulDescSetAttribute_(p->matmul, attribute, value, size);
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof(transpose));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
  if (addresses.bias != 0) {
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &addresses.bias, sizeof(addresses.bias));
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &d_type, sizeof(d_type));
  }
  if (status == CUBLAS_STATUS_SUCCESS) status = DescribeScales(op, addresses, *p);
  const auto layout = [&](cublasLtMatrixLayout_t* made, cudaDataType_t of, uint64_t rows,
                          uint64_t cols, uint64_t ld, uint64_t stride) {
    if (status != CUBLAS_STATUS_SUCCESS) return;
    status = Layout(made, of, rows, cols, ld, op.batch, stride);
  };
  layout(&p->w, type, op.k, op.n, op.ldw, op.stride_w);
  layout(&p->a, type, op.k, op.m, op.lda, op.stride_a);
  layout(&p->c, d_type, op.n, op.m, addresses.c != 0 ? op.ldc : op.ldd,
         addresses.c != 0 ? op.stride_c : op.stride_d);
  layout(&p->d, d_type, op.n, op.m, op.ldd, op.stride_d);
  return CheckLt(status, "describing the GEMM to cuBLASLt", error);
}

void CublasLt::Destroy(const Problem& p) const {
  for (cublasLtMatrixLayout_t layout : {p.w, p.a, p.c, p.d}) {
    if (layout != nullptr) cublasLtMatrixLayoutDestroy_(layout);
  }
  if (p.matmul != nullptr) cublasLtMatmulDescDestroy_(p.matmul);
}

int CublasLt::Gemm(cublasLtHandle_t handle, const concert_gemm& op, const GemmAddresses& addresses,
                   Workspace workspace, CUstream stream, concert_error* error) const {
  Problem p;
  cublasLtMatmulPreference_t preference = nullptr;
  const auto pointer = [](CUdeviceptr address) { return reinterpret_cast<void*>(address); };
  int code = Describe(op, addresses, &p, error);
  if (code == CONCERT_OK) {
    code = CheckLt(cublasLtMatmulPreferenceCreate_(&preference), "cublasLtMatmulPreferenceCreate",
                   error);
  }
  cublasLtMatmulHeuristicResult_t found;
  int count = 0;
  if (code == CONCERT_OK) {
    cublasLtMatmulPreferenceSetAttribute_(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                          &workspace.bytes, sizeof(workspace.bytes));
    code = CheckLt(cublasLtMatmulAlgoGetHeuristic_(handle, p.matmul, p.w, p.a, p.c, p.d, preference,
                                                   1, &found, &count),
                   "cublasLtMatmulAlgoGetHeuristic", error);
  }
  if (code == CONCERT_OK && count == 0) {
    code = Fail(error, CONCERT_UNIMPLEMENTED, "cuBLASLt has no algorithm for m=%u n=%u k=%u", op.m,
                op.n, op.k);
  }
  if (code == CONCERT_OK) {
    const CUdeviceptr c = addresses.c != 0 ? addresses.c : addresses.d;
    code =
        CheckLt(cublasLtMatmul_(handle, p.matmul, &op.alpha, pointer(addresses.w), p.w,
                                pointer(addresses.a), p.a, &op.beta, pointer(c), p.c,
                                pointer(addresses.d), p.d, &found.algo, pointer(workspace.address),
                                workspace.bytes, reinterpret_cast<cudaStream_t>(stream)),
                "cublasLtMatmul", error);
  }
  if (preference != nullptr) cublasLtMatmulPreferenceDestroy_(preference);
  Destroy(p);
  return code;
}

}  // namespace concert::client
