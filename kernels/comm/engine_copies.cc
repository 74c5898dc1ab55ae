#include "kernels/comm/engine_copies.h"

namespace concert::kernels::cuda {
namespace {

CUresult CopyOnEngine(const Driver& driver, CUstream stream, CUdeviceptr target, CUdeviceptr source,
                      size_t bytes) {
  CUmemcpyAttributes attributes = {};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  attributes.flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
  size_t first = 0;  // that the attributes are of
  return driver.cuMemcpyBatchAsync(&target, &source, &bytes, 1, &attributes, &first, 1, stream);
}

}  // namespace

absl::Status EngineCopies::Copy(const Driver& driver, int gpu, CUstream stream, CUdeviceptr target,
                                CUdeviceptr source, uint64_t bytes) {
  if (driver.cuMemcpyBatchAsync != nullptr && !refused_.load(std::memory_order_relaxed)) {
    const CUresult result = CopyOnEngine(driver, stream, target, source, bytes);
    const bool refused = result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED;
    if (refused) refused_.store(true, std::memory_order_relaxed);
    if (!refused) return driver.ToStatus(result, "cuMemcpyBatchAsync", gpu);
  }
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, gpu, cuMemcpyDtoDAsync, target, source, bytes, stream);
  return absl::OkStatus();
}

}  // namespace concert::kernels::cuda
