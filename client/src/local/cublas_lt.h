// GEMMs through a cuBLASLt opened at run time.
#ifndef CONCERT_CLIENT_SRC_LOCAL_CUBLAS_LT_H_
#define CONCERT_CLIENT_SRC_LOCAL_CUBLAS_LT_H_

#include <cublasLt.h>
#include <cuda.h>

#include "concert/concert.h"
#include "proto/ring/ring_abi.h"

namespace concert::client {

struct Workspace {
  CUdeviceptr address = 0;
  size_t bytes = 0;
};

class CublasLt {
 public:
  // Opens the library, once per process.
  static int Load(const CublasLt** lt, concert_error* error);

  int CreateHandle(cublasLtHandle_t* handle, concert_error* error) const;
  void DestroyHandle(cublasLtHandle_t handle) const;

  // Enqueues `op`, whose offsets are addresses (LocateGemm), on `stream`. The heuristic is asked
  // every time, some microseconds of CPU: the fallback is for correctness, not for speed.
  // UNIMPLEMENTED for silu and for what cuBLASLt has no kernel for, as fp8 that is not aligned.
  int Gemm(cublasLtHandle_t handle, const concert_gemm_body& op, Workspace workspace,
           CUstream stream, concert_error* error) const;

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

  struct Problem;
  cublasStatus_t DescribeScales(const concert_gemm_body& op, const Problem& problem) const;
  int Describe(const concert_gemm_body& op, Problem* problem, concert_error* error) const;
  cublasStatus_t Prefer(const concert_gemm_body& op, uint64_t workspace_bytes,
                        cublasLtMatmulPreference_t* preference) const;
  // Enqueues it with the first algorithm that cuBLASLt offers and then takes.
  cublasStatus_t Run(cublasLtHandle_t handle, const concert_gemm_body& op, const Problem& problem,
                     Workspace workspace, CUstream stream) const;
  void Destroy(const Problem& problem) const;
  cublasStatus_t Layout(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                        uint64_t cols, uint64_t ld, uint32_t batch, uint64_t stride) const;

  int code_ = CONCERT_OK;
  concert_error error_{};
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_LOCAL_CUBLAS_LT_H_
