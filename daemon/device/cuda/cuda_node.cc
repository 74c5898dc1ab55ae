#include "daemon/device/cuda/cuda_node.h"

#include <numeric>
#include <utility>
#include <vector>

#include "daemon/clock.h"
#include "daemon/device/cuda/cuda_collectives.h"
#include "daemon/device/cuda/cuda_device.h"
#include "daemon/device/cuda/nvml.h"
#include "daemon/device/cuda/nvtx_ranges.h"

namespace concert::daemon {
namespace cuda {
namespace {

using kernels::cuda::CudaApi;

class CudaNode : public Node {
 public:
  CudaNode(std::unique_ptr<CudaApi> api, std::unique_ptr<NvtxRanges> ranges,
           std::vector<std::unique_ptr<CudaDevice>> devices, std::unique_ptr<Nvml> nvml,
           const CudaOptions& options)
      : api_(std::move(api)),
        ranges_(std::move(ranges)),
        devices_(std::move(devices)),
        nvml_(std::move(nvml)),
        collectives_(*api_, devices_, options) {}

  int gpu_count() const override { return static_cast<int>(devices_.size()); }
  Device& gpu(int index) override { return *devices_[index]; }
  Sensors ReadSensors(int gpu) override {
    return nvml_ == nullptr ? Sensors() : nvml_->Read(static_cast<size_t>(gpu), NowNs());
  }

  absl::StatusOr<Address> RegisterHostMemory(void* data, uint64_t bytes) override {
    const kernels::cuda::Driver& driver = api_->driver;
    CONCERT_RETURN_IF_DRIVER_ERROR(driver, 0, cuCtxSetCurrent, devices_[0]->context());
    // Portable: one registration serves the contexts of all GPUs.
    CONCERT_RETURN_IF_DRIVER_ERROR(driver, 0, cuMemHostRegister, data, bytes,
                                   CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    CUdeviceptr address = 0;
    const CUresult result = driver.cuMemHostGetDevicePointer(&address, data, 0);
    if (result != CUDA_SUCCESS) {
      driver.cuMemHostUnregister(data);
      return driver.ToStatus(result, "cuMemHostGetDevicePointer", 0);
    }
    return address;
  }

  void UnregisterHostMemory(void* data) override {
    api_->driver.cuCtxSetCurrent(devices_[0]->context());
    api_->driver.cuMemHostUnregister(data);
  }

  std::string collective_software() const override { return collectives_.software(); }
  absl::Status Connect(std::span<const int> gpus) override { return collectives_.Connect(gpus); }
  absl::Status LaunchCollective(std::span<const RankPart> parts,
                                const policies::TransportChoice& choice) override {
    const NvtxRanges::Range range(*ranges_, parts[0].op->kind, policies::Form::kSingle,
                                  policies::Reason::kCollective, /*plan=*/0);
    return collectives_.Launch(parts, choice);
  }

 private:
  // Destroyed from last to first: communicators, GPUs, then the libraries.
  const std::unique_ptr<CudaApi> api_;
  const std::unique_ptr<NvtxRanges> ranges_;
  const std::vector<std::unique_ptr<CudaDevice>> devices_;
  const std::unique_ptr<Nvml> nvml_;  // null: there is none
  CudaCollectives collectives_;
};

absl::StatusOr<std::vector<std::unique_ptr<CudaDevice>>> OpenDevices(const CudaApi& api,
                                                                     const NvtxRanges& ranges,
                                                                     const CudaOptions& options) {
  int count = 0;
  CONCERT_RETURN_IF_DRIVER_ERROR(api.driver, 0, cuDeviceGetCount, &count);
  std::vector<std::unique_ptr<CudaDevice>> devices;
  for (int gpu = 0; gpu < count; ++gpu) {
    absl::StatusOr<std::unique_ptr<CudaDevice>> device =
        CudaDevice::Open(api, ranges, gpu, count, options);
    if (!device.ok()) return device.status();
    devices.push_back(*std::move(device));
  }
  for (const auto& device : devices) {
    if (!device->info().peer_access) continue;
    for (const auto& peer : devices) {
      if (peer == device) continue;
      if (absl::Status status = device->EnablePeer(*peer); !status.ok()) return status;
    }
  }
  return devices;
}

// Null where there is none: what the sensors say is shown and decides nothing.
std::unique_ptr<Nvml> OpenNvml(const std::vector<std::unique_ptr<CudaDevice>>& devices) {
  std::vector<DeviceInfo> infos;
  infos.reserve(devices.size());
  for (const auto& device : devices) infos.push_back(device->info());
  absl::StatusOr<std::unique_ptr<Nvml>> nvml = Nvml::Open(infos);
  return nvml.ok() ? *std::move(nvml) : nullptr;
}

}  // namespace
}  // namespace cuda

absl::StatusOr<std::unique_ptr<Node>> OpenCudaNode(const CudaOptions& options) {
  absl::StatusOr<kernels::cuda::CudaApi> loaded =
      kernels::cuda::LoadCudaApi(kernels::cuda::HardwareQueues::kMost);  // a lane is a stream
  if (!loaded.ok()) return loaded.status();
  auto api = std::make_unique<kernels::cuda::CudaApi>(*std::move(loaded));
  auto ranges = std::make_unique<cuda::NvtxRanges>(options.nvtx);
  absl::StatusOr<std::vector<std::unique_ptr<cuda::CudaDevice>>> devices =
      cuda::OpenDevices(*api, *ranges, options);
  if (!devices.ok()) return devices.status();
  std::unique_ptr<cuda::Nvml> nvml = cuda::OpenNvml(*devices);
  auto node = std::make_unique<cuda::CudaNode>(std::move(api), std::move(ranges),
                                               *std::move(devices), std::move(nvml), options);
  // The list that nearly everyone uses is connected before traffic. If it cannot be, the node still
  // serves single GPUs, and whoever asks for this list is told why.
  std::vector<int> all(node->gpu_count());
  std::iota(all.begin(), all.end(), 0);
  node->Connect(all).IgnoreError();
  return node;
}

}  // namespace concert::daemon
