#include "client/src/local/cublas_lt.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cinttypes>

#include "client/src/failure.h"
#include "client/src/local/gemm_checks.h"
#include "proto/ring/messages.h"

namespace concert::client {
namespace {

// Of a dtype that a GEMM may have (CheckGemm).
cudaDataType_t DataType(uint32_t dtype) {
  switch (dtype) {
    case CONCERT_FP16:
      return CUDA_R_16F;
    case CONCERT_FP32:
      return CUDA_R_32F;
    case CONCERT_FP8_E4M3:
      return CUDA_R_8F_E4M3;
    default:
      return CUDA_R_16BF;
  }
}

// fp8 only as cuBLASLt takes it (its documentation, "Floating Point 8-bit Data Types Usage"): the
// heuristic does not see every address, and a kernel that finds one misaligned takes the process's
// context down. Scales too, even the one of a tensor: with it 4 bytes past such a multiple, 13.1 on
// an H200 offered an algorithm that cublasLtMatmul then refused.
int CheckFp8(const concert_gemm_body& op, concert_error* error) {
  const bool scaled = op.a.scales != 0 || op.w.scales != 0;
  if (op.dtype != CONCERT_FP8_E4M3) {
    return scaled ? Fail(error, CONCERT_UNIMPLEMENTED,
                         "scales are given, but dtype is %u; in CONCERT_FALLBACK=cublas only "
                         "operands in fp8_e4m3 have them; start concertd",
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
  constexpr uint64_t kOutputBytes = 2;  // bf16 and fp16
  const bool has_c = op.c.offset != 0;
  const struct {
    const char* name;
    uint64_t bytes;
  } fields[] = {{"the address of a", op.a.offset},
                {"the address of w", op.w.offset},
                {"the address of c", op.c.offset},
                {"the address of d", op.d.offset},
                {"the address of bias", op.bias.offset},
                {"the address of a_scales", op.a_scales_offset},
                {"the address of w_scales", op.w_scales_offset},
                {"k", op.k},
                {"lda", op.lda},
                {"ldw", op.ldw},
                {"ldc in bytes", has_c ? op.ldc * kOutputBytes : 0},
                {"ldd in bytes", op.ldd * kOutputBytes},
                {"stride_a", op.stride_a},
                {"stride_w", op.stride_w},
                {"stride_c in bytes", has_c ? op.stride_c * kOutputBytes : 0},
                {"stride_d in bytes", op.stride_d * kOutputBytes}};
  for (const auto& [name, bytes] : fields) {
    if (bytes % 16 == 0) continue;
    return Fail(error, CONCERT_UNIMPLEMENTED,
                "%s is %" PRIu64
                "; fp8 in CONCERT_FALLBACK=cublas needs multiples of 16 bytes; start concertd",
                name, bytes);
  }
  return CONCERT_OK;
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
  return Fail(error, CONCERT_INTERNAL, "%s failed with cublasStatus_t %d", call,
              static_cast<int>(status));
}

// Whether cuBLASLt says that it launched nothing because it cannot compute this: an older library
// or GPU does not know a type or a scale mode, or a kernel does not take these operands.
bool IsRefusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
}

int Refuse(const concert_gemm_body& op, concert_error* error) {
  return Fail(error, CONCERT_UNIMPLEMENTED,
              "cuBLASLt has no kernel on this GPU for this GEMM of %s with m=%u n=%u k=%u "
              "batch=%u; start concertd, which has its own",
              concert_dtype_name(op.dtype), op.m, op.n, op.k, op.batch);
}

// What cuBLASLt may believe about an address; more than 256 bytes it does not ask for.
uint32_t Alignment(CUdeviceptr address) {
  return uint32_t{1} << std::min(std::countr_zero(address), 8);
}

}  // namespace

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
cublasStatus_t CublasLt::DescribeScales(const concert_gemm_body& op, const Plan& p) const {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    if (status != CUBLAS_STATUS_SUCCESS) return;
    status = cublasLtMatmulDescSetAttribute_(p.matmul_, attribute, &value, sizeof(value));
  };
  // cuBLASLt before 12.9 does not know the modes: they are named only where they are not default.
  if ((op.flags & CONCERT_GEMM_A_SCALES_PER_ROW) != 0) {
    constexpr int32_t kPerRow = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, kPerRow);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, kPerRow);
  }
  if (op.w.scales != 0) set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, op.w_scales_offset);
  if (op.a.scales != 0) set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, op.a_scales_offset);
  return status;
}

int CublasLt::Describe(const concert_gemm_body& op, Plan* p, concert_error* error) const {
  const cudaDataType_t type = DataType(op.dtype), d_type = DataType(DtypeOfD(op));
  cublasLtEpilogue_t epilogue;
  if (int code = CheckFp8(op, error)) return code;
  if (!Epilogue(op.activation, op.bias.offset != 0, &epilogue)) {
    return Fail(error, CONCERT_UNIMPLEMENTED,
                "activation %u is not available in CONCERT_FALLBACK=cublas, which has none, relu "
                "and gelu; start concertd",
                op.activation);
  }
  if (IsGated(op)) {
    return Fail(error, CONCERT_UNIMPLEMENTED,
                "gated products are not available in CONCERT_FALLBACK=cublas; start concertd");
  }
  if ((op.flags & CONCERT_GEMM_RESIDUAL) != 0 && op.activation != CONCERT_ACTIVATION_NONE) {
    return Fail(error, CONCERT_UNIMPLEMENTED,
                "a residual behind activation %u is not available in CONCERT_FALLBACK=cublas; "
                "start concertd",
                op.activation);
  }
  const bool tf32 = op.dtype == CONCERT_FP32 && (op.flags & CONCERT_GEMM_ALLOW_TF32) != 0;
  const cublasComputeType_t compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  const cublasOperation_t transpose = CUBLAS_OP_T;
  cublasStatus_t status = cublasLtMatmulDescCreate_(&p->matmul_, compute, CUDA_R_32F);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const void* value, size_t size) {
    if (status != CUBLAS_STATUS_SUCCESS) return;
    status = cublasLtMatmulDescSetAttribute_(p->matmul_, attribute, value, size);
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof(transpose));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
  if (op.bias.offset != 0) {
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &op.bias.offset, sizeof(op.bias.offset));
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &d_type, sizeof(d_type));
  }
  if (status == CUBLAS_STATUS_SUCCESS) status = DescribeScales(op, *p);
  const auto layout = [&](cublasLtMatrixLayout_t* made, cudaDataType_t of, uint64_t rows,
                          uint64_t cols, uint64_t ld, uint64_t stride) {
    if (status != CUBLAS_STATUS_SUCCESS) return;
    status = Layout(made, of, rows, cols, ld, op.batch, stride);
  };
  layout(&p->w_, type, op.k, op.n, op.ldw, op.stride_w);
  layout(&p->a_, type, op.k, op.m, op.lda, op.stride_a);
  layout(&p->c_, d_type, op.n, op.m, op.c.offset != 0 ? op.ldc : op.ldd,
         op.c.offset != 0 ? op.stride_c : op.stride_d);
  layout(&p->d_, d_type, op.n, op.m, op.ldd, op.stride_d);
  if (IsRefusal(status)) return Refuse(op, error);
  return CheckLt(status, "describing the GEMM to cuBLASLt", error);
}

CublasLt::Plan::~Plan() {
  for (cublasLtMatrixLayout_t layout : {w_, a_, c_, d_}) {
    if (layout != nullptr) lt_.cublasLtMatrixLayoutDestroy_(layout);
  }
  if (matmul_ != nullptr) lt_.cublasLtMatmulDescDestroy_(matmul_);
}

cublasStatus_t CublasLt::Prefer(const concert_gemm_body& op,
                                cublasLtMatmulPreference_t* preference) const {
  cublasStatus_t status = cublasLtMatmulPreferenceCreate_(preference);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    if (status != CUBLAS_STATUS_SUCCESS) return;
    status = cublasLtMatmulPreferenceSetAttribute_(*preference, attribute, &value, sizeof(value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes});
  // Splits of K meet in fp32 only, as the daemon's do.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, Alignment(op.w.offset));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, Alignment(op.a.offset));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
      Alignment(op.c.offset != 0 ? op.c.offset : op.d.offset));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, Alignment(op.d.offset));
  return status;
}

cublasStatus_t CublasLt::FindCandidates(cublasLtHandle_t handle, const concert_gemm_body& op,
                                        Plan* p) const {
  cublasLtMatmulPreference_t preference = nullptr;
  std::array<cublasLtMatmulHeuristicResult_t, Plan::kMaxCandidates> found = {};
  int count = 0;
  cublasStatus_t status = Prefer(op, &preference);
  if (status == CUBLAS_STATUS_SUCCESS) {
    status =
        cublasLtMatmulAlgoGetHeuristic_(handle, p->matmul_, p->w_, p->a_, p->c_, p->d_, preference,
                                        static_cast<int>(found.size()), found.data(), &count);
  }
  if (preference != nullptr) cublasLtMatmulPreferenceDestroy_(preference);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  for (int i = 0; i < count; ++i) {
    if (found[i].state != CUBLAS_STATUS_SUCCESS || found[i].workspaceSize > kWorkspaceBytes) {
      continue;
    }
    p->candidates_[p->candidate_count_++] = found[i].algo;
  }
  return p->candidate_count_ > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

int CublasLt::MakePlan(cublasLtHandle_t handle, const concert_gemm_body& op, Plan* plan,
                       concert_error* error) const {
  if (int code = Describe(op, plan, error)) return code;
  const cublasStatus_t status = FindCandidates(handle, op, plan);
  return IsRefusal(status) ? Refuse(op, error) : CheckLt(status, "planning it in cuBLASLt", error);
}

int CublasLt::Enqueue(cublasLtHandle_t handle, const concert_gemm_body& op, const Plan& p,
                      CUdeviceptr workspace, CUstream stream, concert_error* error) const {
  const auto pointer = [](CUdeviceptr address) { return reinterpret_cast<void*>(address); };
  const CUdeviceptr c = op.c.offset != 0 ? op.c.offset : op.d.offset;
  cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
  // The heuristic's offer may still be refused, before a launch, for these addresses.
  for (int i = 0; i < p.candidate_count_ && IsRefusal(status); ++i) {
    status = cublasLtMatmul_(handle, p.matmul_, &op.alpha, pointer(op.w.offset), p.w_,
                             pointer(op.a.offset), p.a_, &op.beta, pointer(c), p.c_,
                             pointer(op.d.offset), p.d_, &p.candidates_[i], pointer(workspace),
                             kWorkspaceBytes, reinterpret_cast<cudaStream_t>(stream));
  }
  return IsRefusal(status) ? Refuse(op, error)
                           : CheckLt(status, "enqueueing it in cuBLASLt", error);
}

}  // namespace concert::client
