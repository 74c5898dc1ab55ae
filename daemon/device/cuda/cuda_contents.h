// Looks at and copies what lies in one GPU's memory, by the kernels of kernels/digest. One
// thread; every call waits for the GPU.
#ifndef CONCERT_DAEMON_DEVICE_CUDA_CUDA_CONTENTS_H_
#define CONCERT_DAEMON_DEVICE_CUDA_CUDA_CONTENTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/device/device.h"
#include "kernels/cuda_api/driver.h"
#include "kernels/cuda_api/kernel_image.h"

namespace concert::daemon::cuda {

class CudaContents {
 public:
  // `stream` is of `context`. All of these outlive it.
  CudaContents(const kernels::cuda::Driver& driver, int gpu, CUcontext context, CUstream stream,
               const kernels::cuda::KernelTable& kernels)
      : driver_(driver), gpu_(gpu), context_(context), stream_(stream), kernels_(kernels) {}
  CudaContents(const CudaContents&) = delete;
  CudaContents& operator=(const CudaContents&) = delete;
  // REQUIRES: the context is current.
  ~CudaContents();

  // Before all else; the context is current.
  absl::Status Init();

  // As Device's.
  absl::StatusOr<uint64_t> Digest(Address data, uint64_t bytes);
  absl::StatusOr<bool> Same(Address a, Address b, uint64_t bytes);
  absl::Status Copy(Address to, Address from, uint64_t bytes);

 private:
  // What `function` adds to or makes of the 0 at args.result, which is result_.
  template <typename Args>
  absl::StatusOr<uint64_t> Run(CUfunction function, const Args& args);

  const kernels::cuda::Driver& driver_;
  const int gpu_;
  const CUcontext context_;
  const CUstream stream_;
  const kernels::cuda::KernelTable& kernels_;
  CUdeviceptr result_ = 0;  // of the kernel that runs
};

}  // namespace concert::daemon::cuda

#endif  // CONCERT_DAEMON_DEVICE_CUDA_CUDA_CONTENTS_H_
