// NVML, NVIDIA's management library, for what CUDA does not say: the memory that all processes
// together use, power, clocks and temperature. Opened at run time; without it there are no sensors.
#ifndef CONCERT_DAEMON_DEVICE_CUDA_NVML_H_
#define CONCERT_DAEMON_DEVICE_CUDA_NVML_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/device/device.h"
#include "kernels/cuda_api/shared_library.h"
#include "proto/mutex.h"

struct nvmlDevice_st;

namespace concert::daemon::cuda {

// Thread-safe.
class Nvml {
 public:
  // A GPU is asked at most this often, whoever wants to know: NVML's questions take locks of the
  // driver that launches need, too.
  static constexpr policies::Time kLeastAgeNs = 100'000'000;

  // Finds `gpus` by their uuids; one that NVML does not know, as a part of a GPU (MIG), has no
  // sensors. UNAVAILABLE without `library`, FAILED_PRECONDITION if it lacks a function or refuses.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(std::span<const DeviceInfo> gpus,
                                                    const char* library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Of gpus[index], not older than kLeastAgeNs before `now`. What NVML does not say is absent. Asks
  // the driver: milliseconds, more while that is busy with the GPU.
  Sensors Read(size_t index, policies::Time now);

 private:
  struct Functions;
  struct Gpu {
    nvmlDevice_st* handle = nullptr;  // null: NVML does not know it
    bool read = false;
    policies::Time read_at = 0;
    Sensors sensors = {};
  };

  Nvml(kernels::cuda::SharedLibrary library, std::unique_ptr<Functions> functions);
  Sensors Ask(nvmlDevice_st* handle) const;

  const kernels::cuda::SharedLibrary library_;
  const std::unique_ptr<const Functions> functions_;
  Mutex mutex_;
  std::vector<Gpu> gpus_ CONCERT_GUARDED_BY(mutex_);
};

}  // namespace concert::daemon::cuda

#endif  // CONCERT_DAEMON_DEVICE_CUDA_NVML_H_
