// GEMMs through a cuBLASLt opened at run time.
#ifndef CONCERT_CLIENT_SRC_LOCAL_CUBLAS_LT_H_
#define CONCERT_CLIENT_SRC_LOCAL_CUBLAS_LT_H_

#include <cublasLt.h>
#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "concert/concert.h"
#include "proto/ring/ring_abi.h"

namespace concert::client {

// Of each queue. What NVIDIA recommends for Hopper.
inline constexpr size_t kWorkspaceBytes = 32u << 20;

class CublasLt {
 public:
  // Opens the library, once per process.
  static int Load(const CublasLt** lt, concert_error* error);

  int CreateHandle(cublasLtHandle_t* handle, concert_error* error) const;
  void DestroyHandle(cublasLtHandle_t handle) const;

  // A GEMM that cuBLASLt takes.
  class Plan;

  // Finds how to compute `op`, whose offsets are addresses (LocateGemm), and enqueues nothing. The
  // heuristic is asked every time, some microseconds of CPU: the fallback is for correctness, not
  // for speed. UNIMPLEMENTED for silu and for what cuBLASLt has no kernel for, as fp8 that is not
  // aligned.
  int MakePlan(cublasLtHandle_t handle, const concert_gemm_body& op, Plan* plan,
               concert_error* error) const;
  int Enqueue(cublasLtHandle_t handle, const concert_gemm_body& op, const Plan& plan,
              CUdeviceptr workspace, CUstream stream, concert_error* error) const;

 private:
  CublasLt();

#define CONCERT_CUBLASLT_FUNCTIONS(X)     \
  X(cublasLtCreate)                       \
  X(cublasLtDestroy)                      \
  X(cublasLtMatmulDescCreate)             \
  X(cublasLtMatmulDescDestroy)            \
  X(cublasLtMatmulDescSetAttribute)       \
  X(cublasLtMatrixLayoutCreate)           \
  X(cublasLtMatrixLayoutDestroy)          \
  X(cublasLtMatrixLayoutSetAttribute)     \
  X(cublasLtMatmulPreferenceCreate)       \
  X(cublasLtMatmulPreferenceDestroy)      \
  X(cublasLtMatmulPreferenceSetAttribute) \
  X(cublasLtMatmulAlgoGetHeuristic)       \
  X(cublasLtMatmul)
#define X(name) decltype(&::name) name##_ = nullptr;
  CONCERT_CUBLASLT_FUNCTIONS(X)
#undef X

  cublasStatus_t DescribeScales(const concert_gemm_body& op, const Plan& plan) const;
  int Describe(const concert_gemm_body& op, Plan* plan, concert_error* error) const;
  cublasStatus_t Prefer(const concert_gemm_body& op, cublasLtMatmulPreference_t* preference) const;
  cublasStatus_t FindCandidates(cublasLtHandle_t handle, const concert_gemm_body& op,
                                Plan* plan) const;
  cublasStatus_t Layout(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                        uint64_t cols, uint64_t ld, uint32_t batch, uint64_t stride) const;

  int code_ = CONCERT_OK;
  concert_error error_{};
};

// cuBLASLt is column-major, concert row-major: the same bytes read by columns are the transposed
// matrix, so D^T[n,m] = W[n,k] * A^T[k,m] is computed. W's bytes are a (k x n) column-major matrix,
// to be transposed.
class CublasLt::Plan {
 public:
  // `lt` outlives it.
  explicit Plan(const CublasLt& lt) : lt_(lt) {}
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

 private:
  friend class CublasLt;
  // How many algorithms are tried until one takes the operands.
  static constexpr int kMaxCandidates = 8;

  const CublasLt& lt_;
  cublasLtMatmulDesc_t matmul_ = nullptr;
  cublasLtMatrixLayout_t w_ = nullptr, a_ = nullptr, c_ = nullptr, d_ = nullptr;
  std::array<cublasLtMatmulAlgo_t, kMaxCandidates> candidates_;
  int candidate_count_ = 0;
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_LOCAL_CUBLAS_LT_H_
