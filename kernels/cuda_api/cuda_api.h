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

// Hardware queues ("connections") of each context of this process. Streams beyond them share queues
// and wait for each other without need. But the clients of an MPS server take theirs from one pool
// (NVIDIA's MPS documentation): with 32 each, more than two were refused on an H200.
enum class HardwareQueues {
  kDefault,  // the driver's: 8, fewer under MPS; for a process with few streams
  kMost,     // 32, the most that the driver takes
};

// UNAVAILABLE where there is no usable GPU, FAILED_PRECONDITION where one is but cuBLASLt is
// missing. Sets environment defaults that the libraries read, where the environment has none; call
// before starting threads.
absl::StatusOr<CudaApi> LoadCudaApi(HardwareQueues queues);

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_CUDA_API_CUDA_API_H_
