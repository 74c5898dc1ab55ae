// All CUDA GPUs of this machine.
#ifndef CONCERT_DAEMON_DEVICE_CUDA_CUDA_NODE_H_
#define CONCERT_DAEMON_DEVICE_CUDA_CUDA_NODE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "daemon/device/cuda/cuda_options.h"
#include "daemon/device/device.h"

namespace concert::daemon {

// Opens every GPU that CUDA shows (CUDA_VISIBLE_DEVICES applies) and connects them with NCCL. Takes
// a few seconds. UNAVAILABLE where there is no driver or no GPU. Sets environment defaults that
// CUDA and NCCL read: call it before starting threads, and fork nothing afterwards.
absl::StatusOr<std::unique_ptr<Node>> OpenCudaNode(const CudaOptions& options = {});

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_DEVICE_CUDA_CUDA_NODE_H_
