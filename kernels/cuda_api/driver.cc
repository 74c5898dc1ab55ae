#include "kernels/cuda_api/driver.h"

#include <utility>

#include "absl/strings/str_cat.h"

#define CONCERT_QUOTE(text) #text

namespace concert::kernels::cuda {

absl::StatusOr<Driver> Driver::Load() {
  absl::StatusOr<SharedLibrary> library = SharedLibrary::Open({"libcuda.so.1"});
  if (!library.ok()) return library.status();
  Driver driver;
  driver.library_ = *std::move(library);
#define X(name)                                                                        \
  if (absl::Status status = driver.library_.Resolve(CONCERT_QUOTE(name), driver.name); \
      !status.ok())                                                                    \
    return status;
  CONCERT_DRIVER_FUNCTIONS(X)
#undef X
  int gpus = 0;
  CUresult result = driver.cuInit(0);
  if (result == CUDA_SUCCESS) result = driver.cuDeviceGetCount(&gpus);
  if (result != CUDA_SUCCESS) {
    return absl::UnavailableError(driver.ToStatus(result, "cuInit", 0).message());
  }
  if (gpus == 0) return absl::UnavailableError("the CUDA driver sees no GPU");
  return driver;
}

absl::Status Driver::Failed(CUresult result, const char* call, int gpu) const {
  const char* name = "an unknown CUresult";
  const char* text = "";
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  const std::string message = absl::StrCat(call, " on GPU ", gpu, ": ", name, " (", text, ")");
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return absl::ResourceExhaustedError(message);
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_DEVICE:
      return absl::InvalidArgumentError(message);
    case CUDA_ERROR_NOT_SUPPORTED:
      return absl::UnimplementedError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace concert::kernels::cuda
