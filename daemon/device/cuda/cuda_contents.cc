#include "daemon/device/cuda/cuda_contents.h"

#include "kernels/cuda_api/launch_kernel.h"
#include "kernels/digest/digest_piece.h"

namespace concert::daemon::cuda {

using kernels::cuda::CompareArgs;
using kernels::cuda::DigestArgs;

CudaContents::~CudaContents() {
  if (result_ != 0) driver_.cuMemFree(result_);
}

absl::Status CudaContents::Init() {
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemAlloc, &result_, sizeof(uint64_t));
  return absl::OkStatus();
}

template <typename Args>
absl::StatusOr<uint64_t> CudaContents::Run(CUfunction function, const Args& args) {
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuCtxSetCurrent, context_);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemsetD8Async, result_, 0, sizeof(uint64_t),
                                 stream_);
  const auto blocks = static_cast<unsigned>(kernels::cuda::DigestBlocks(args.bytes));
  if (absl::Status status = kernels::cuda::LaunchKernel(
          driver_, gpu_, function, blocks, kernels::cuda::kDigestThreads, stream_, args);
      !status.ok()) {
    return status;
  }
  uint64_t result = 0;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemcpyDtoHAsync, &result, result_, sizeof(result),
                                 stream_);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuStreamSynchronize, stream_);
  return result;
}

absl::StatusOr<uint64_t> CudaContents::Digest(Address data, uint64_t bytes) {
  return Run(kernels_.digest, DigestArgs{.data = data, .bytes = bytes, .result = result_});
}

absl::StatusOr<bool> CudaContents::Same(Address a, Address b, uint64_t bytes) {
  const absl::StatusOr<uint64_t> differ =
      Run(kernels_.compare, CompareArgs{.a = a, .b = b, .bytes = bytes, .result = result_});
  if (!differ.ok()) return differ.status();
  return *differ == 0;
}

absl::Status CudaContents::Copy(Address to, Address from, uint64_t bytes) {
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuCtxSetCurrent, context_);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemcpyDtoDAsync, to, from, bytes, stream_);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuStreamSynchronize, stream_);
  return absl::OkStatus();
}

}  // namespace concert::daemon::cuda
