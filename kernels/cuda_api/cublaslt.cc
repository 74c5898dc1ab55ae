#include "kernels/cuda_api/cublaslt.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace concert::kernels::cuda {

absl::StatusOr<CublasLt> CublasLt::Load() {
  absl::StatusOr<SharedLibrary> library =
      SharedLibrary::Open({"libcublasLt.so.13", "libcublasLt.so.12"});
  if (!library.ok()) return library.status();
  CublasLt cublaslt;
  cublaslt.library_ = *std::move(library);
#define X(name)                                                                            \
  if (absl::Status status = cublaslt.library_.Resolve(#name, cublaslt.name); !status.ok()) \
    return status;
  CONCERT_CUBLASLT_FUNCTIONS(X)
#undef X
  return cublaslt;
}

absl::Status CublasLt::Failed(cublasStatus_t status, const char* call, int gpu) const {
  const std::string message =
      absl::StrCat(call, " on GPU ", gpu, ": ", cublasLtGetStatusName(status));
  switch (status) {
    case CUBLAS_STATUS_ALLOC_FAILED:
      return absl::ResourceExhaustedError(message);
    case CUBLAS_STATUS_INVALID_VALUE:
      return absl::InvalidArgumentError(message);
    case CUBLAS_STATUS_NOT_SUPPORTED:
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return absl::UnimplementedError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace concert::kernels::cuda
