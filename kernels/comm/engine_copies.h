// Copies within one GPU that need no SM. cuMemcpyDtoDAsync makes them with a kernel of the
// driver's, on all SMs.
#ifndef CONCERT_KERNELS_COMM_ENGINE_COPIES_H_
#define CONCERT_KERNELS_COMM_ENGINE_COPIES_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda_api/driver.h"

namespace concert::kernels::cuda {

// Any thread.
class EngineCopies {
 public:
  // Asks the driver for a copy engine; one that does not know how to, or has refused before, gets a
  // plain copy. REQUIRES: `stream` is no default stream and captures nothing.
  absl::Status Copy(const Driver& driver, int gpu, CUstream stream, CUdeviceptr target,
                    CUdeviceptr source, uint64_t bytes);

 private:
  std::atomic<bool> refused_ = false;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_COMM_ENGINE_COPIES_H_
