// The CUDA libraries of this process, as the node that owns them loaded them.
#ifndef CONCERT_KERNELS_CUDA_API_CUDA_API_H_
#define CONCERT_KERNELS_CUDA_API_CUDA_API_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda_api/cublaslt.h"
#include "kernels/cuda_api/driver.h"
#include "kernels/cuda_api/nccl.h"

namespace concert::kernels::cuda {

struct CudaApi {
  Driver driver;
  CublasLt cublaslt;
  std::optional<Nccl> nccl;  // needed for collectives between GPUs only
  absl::Status nccl_status;  // why there is none
};

// UNAVAILABLE where there is no usable GPU, FAILED_PRECONDITION where one is but cuBLASLt is
// missing. Sets environment defaults that the libraries read; call before starting threads.
absl::StatusOr<CudaApi> LoadCudaApi();

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_CUDA_API_CUDA_API_H_
