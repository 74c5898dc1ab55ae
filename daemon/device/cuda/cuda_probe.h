// What a CUDA GPU is and can do, from its attributes.
#ifndef CONCERT_DAEMON_DEVICE_CUDA_CUDA_PROBE_H_
#define CONCERT_DAEMON_DEVICE_CUDA_CUDA_PROBE_H_

#include <string>

#include "absl/status/statusor.h"
#include "daemon/device/device.h"
#include "kernels/cuda_api/cuda_api.h"

namespace concert::daemon::cuda {

// Probes GPU `gpu` of `gpu_count`. The rates of the model are those measured on an H200 (the
// defaults of policies::DeviceModel) scaled by SM count and clocks: estimates until the GPU has
// been measured.
absl::StatusOr<DeviceInfo> ProbeDevice(const kernels::cuda::Driver& driver, int gpu, int gpu_count);

// DeviceInfo::software.
std::string DescribeSoftware(const kernels::cuda::CudaApi& api);

}  // namespace concert::daemon::cuda

#endif  // CONCERT_DAEMON_DEVICE_CUDA_CUDA_PROBE_H_
