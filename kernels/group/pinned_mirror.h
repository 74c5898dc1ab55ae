// GPU memory with a copy in pinned host memory, written on the host and uploaded in pieces.
#ifndef CONCERT_KERNELS_GROUP_PINNED_MIRROR_H_
#define CONCERT_KERNELS_GROUP_PINNED_MIRROR_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda_api/driver.h"

namespace concert::kernels::cuda {

// REQUIRES of all functions: the GPU's context is current.
class PinnedMirror {
 public:
  PinnedMirror() = default;
  PinnedMirror(const PinnedMirror&) = delete;
  PinnedMirror& operator=(const PinnedMirror&) = delete;
  ~PinnedMirror() { Free(); }

  absl::Status Allocate(const Driver& driver, int gpu, size_t bytes) {
    driver_ = &driver;
    gpu_ = gpu;
    CONCERT_RETURN_IF_DRIVER_ERROR(driver, gpu, cuMemAlloc, &device_, bytes);
    CONCERT_RETURN_IF_DRIVER_ERROR(driver, gpu, cuMemHostAlloc, &host_, bytes, 0);
    return absl::OkStatus();
  }
  void Free() {
    if (device_ != 0) driver_->cuMemFree(device_);
    if (host_ != nullptr) driver_->cuMemFreeHost(host_);
    device_ = 0;
    host_ = nullptr;
  }

  CUdeviceptr device() const { return device_; }
  template <typename T>
  T* host() const {
    return static_cast<T*>(host_);
  }

  // Copies [offset, offset + bytes) in the order of `stream`. The host's copy must not change until
  // that is done.
  absl::Status Upload(size_t offset, size_t bytes, CUstream stream) const {
    return UploadTo(offset, offset, bytes, stream);
  }
  // The same to another place in the GPU's memory.
  absl::Status UploadTo(size_t to, size_t from, size_t bytes, CUstream stream) const {
    return driver_->ToStatus(
        driver_->cuMemcpyHtoDAsync(device_ + to, static_cast<const char*>(host_) + from, bytes,
                                   stream),
        "cuMemcpyHtoDAsync", gpu_);
  }

 private:
  const Driver* driver_ = nullptr;
  int gpu_ = 0;
  CUdeviceptr device_ = 0;
  void* host_ = nullptr;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GROUP_PINNED_MIRROR_H_
