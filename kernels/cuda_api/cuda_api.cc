#include "kernels/cuda_api/cuda_api.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace concert::kernels::cuda {

absl::StatusOr<CudaApi> LoadCudaApi(HardwareQueues queues) {
  if (queues == HardwareQueues::kMost) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  CudaApi api;
  absl::StatusOr<Driver> driver = Driver::Load();
  if (!driver.ok()) return driver.status();
  api.driver = *std::move(driver);
  absl::StatusOr<CublasLt> cublaslt = CublasLt::Load();
  if (!cublaslt.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("there is a GPU but no usable cuBLASLt: ", cublaslt.status().message(),
                     "; install the CUDA 12 or 13 cuBLAS library or add it to the library path"));
  }
  api.cublaslt = *std::move(cublaslt);
  absl::StatusOr<Nccl> nccl = Nccl::Load();
  api.nccl_status = nccl.status();
  if (nccl.ok()) api.nccl = *std::move(nccl);
  return api;
}

}  // namespace concert::kernels::cuda
