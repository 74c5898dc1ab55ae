// One GPU's memory: pool memory by the virtual-memory API, clients' memory by CUDA IPC or VMM file
// descriptors, and blocking copies for tests and tools. Thread-safe: nobody who frees memory waits
// for an allocation, which clears its memory behind whatever fills the GPU.
#ifndef CONCERT_DAEMON_DEVICE_CUDA_CUDA_MEMORY_H_
#define CONCERT_DAEMON_DEVICE_CUDA_CUDA_MEMORY_H_

#include <cstdint>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/device/device.h"
#include "kernels/cuda_api/driver.h"
#include "proto/mutex.h"

namespace concert::daemon::cuda {

class CudaMemory {
 public:
  // `stream` is of `context` and only used here. `shared`: pool memory is mapped for all
  // `gpu_count` GPUs.
  CudaMemory(const kernels::cuda::Driver& driver, int gpu, int gpu_count, bool shared,
             CUcontext context, CUstream stream)
      : driver_(driver),
        gpu_(gpu),
        gpu_count_(gpu_count),
        shared_(shared),
        context_(context),
        stream_(stream) {}
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory();

  // As Device's.
  absl::StatusOr<Allocation> Allocate(uint64_t bytes);
  absl::StatusOr<Allocation> Import(const ImportRequest& request);
  void Free(const Allocation& allocation);

  absl::Status CopyToHost(void* host, Address source, uint64_t bytes);
  absl::Status CopyToDevice(Address destination, const void* host, uint64_t bytes);

 private:
  // What must be undone. `bytes` 0: opened by CUDA IPC.
  struct Mapping {
    CUdeviceptr base = 0;
    uint64_t bytes = 0;
  };

  absl::StatusOr<Allocation> ImportIpc(const ImportRequest& request);
  absl::StatusOr<Allocation> ImportVmm(const ImportRequest& request);
  absl::Status CheckIpcRange(CUdeviceptr base, const ImportRequest& request) const;
  absl::Status CheckVmmLocation(CUmemGenericAllocationHandle handle) const;
  // Maps `handle` with read and write access for this GPU, or for all of them. The mapping keeps
  // the memory.
  absl::StatusOr<CUdeviceptr> Map(CUmemGenericAllocationHandle handle, uint64_t bytes,
                                  bool for_all);
  absl::Status GrantAccess(CUdeviceptr base, uint64_t bytes, bool for_all);
  absl::StatusOr<Allocation> FinishPool(CUmemGenericAllocationHandle handle, uint64_t bytes);
  absl::Status Zero(CUdeviceptr base, uint64_t bytes);
  void Unmap(const Mapping& mapping);
  uint64_t Remember(const Mapping& mapping);

  const kernels::cuda::Driver& driver_;
  const int gpu_;
  const int gpu_count_;
  const bool shared_;
  const CUcontext context_;
  const CUstream stream_;
  Mutex mutex_;
  std::unordered_map<uint64_t, Mapping> mappings_
      CONCERT_GUARDED_BY(mutex_);  // by Allocation::backend_handle
  uint64_t next_handle_ CONCERT_GUARDED_BY(mutex_) = 1;
};

}  // namespace concert::daemon::cuda

#endif  // CONCERT_DAEMON_DEVICE_CUDA_CUDA_MEMORY_H_
