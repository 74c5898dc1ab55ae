// cuBLASLt as a table of functions, resolved once from libcublasLt.so.13 or .12.
#ifndef CONCERT_KERNELS_CUDA_API_CUBLASLT_H_
#define CONCERT_KERNELS_CUDA_API_CUBLASLT_H_

#include <cublasLt.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda_api/shared_library.h"

// The *_internal functions are what cublasLt.h's inline initialisers of caller-owned descriptors
// call; they take the descriptor's size, so that a library which needs more refuses instead of
// overrunning it.
#define CONCERT_CUBLASLT_FUNCTIONS(X)                                                          \
  X(cublasLtCreate)                                                                            \
  X(cublasLtDestroy)                                                                           \
  X(cublasLtGetVersion) X(cublasLtGetStatusName) X(cublasLtMatmul)                             \
      X(cublasLtMatmulDescInit_internal) X(cublasLtMatmulDescSetAttribute)                     \
          X(cublasLtMatrixLayoutInit_internal) X(cublasLtMatrixLayoutSetAttribute)             \
              X(cublasLtMatmulPreferenceInit_internal) X(cublasLtMatmulPreferenceSetAttribute) \
                  X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmulAlgoCheck)                 \
                      X(cublasLtMatmulAlgoConfigGetAttribute)

namespace concert::kernels::cuda {

// Immutable once loaded; any thread may call.
class CublasLt {
 public:
  static absl::StatusOr<CublasLt> Load();

#define X(name) decltype(&::name) name = nullptr;
  CONCERT_CUBLASLT_FUNCTIONS(X)
#undef X

  // The one translation of cuBLASLt errors.
  absl::Status ToStatus(cublasStatus_t status, const char* call, int gpu) const {
    return status == CUBLAS_STATUS_SUCCESS ? absl::OkStatus() : Failed(status, call, gpu);
  }

 private:
  absl::Status Failed(cublasStatus_t status, const char* call, int gpu) const;

  SharedLibrary library_;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_CUDA_API_CUBLASLT_H_
