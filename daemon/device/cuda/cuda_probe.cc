#include "daemon/device/cuda/cuda_probe.h"

#include <cstring>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace concert::daemon::cuda {
namespace {

using kernels::cuda::Driver;

// The GPU that the defaults of policies::DeviceModel were measured on (one H200), as its attributes
// read.
constexpr double kReferenceSms = 132;
constexpr double kReferenceClockKhz = 1980e3;
// 4.2e12 bytes/s measured of the 4.9e12 that bus width and memory clock promise.
constexpr double kHbmEfficiency = 0.86;
// Before Hopper an SM's tensor cores do half of the work per clock.
constexpr double kAmpereTensorShare = 0.5;
// Tensor cores before Ada have no fp8: those GEMMs run in fp32, on the fallback kernel.
constexpr int kFirstBulkCopyCapability = 90;  // kernels/comm/peer_kernels.cu
constexpr int kFirstFp8Capability = 89;
// Without peer access bytes between GPUs go through PCIe and host memory.
constexpr double kHostLinkBytesPerSecond = 12e9;

// 0 if the driver does not say.
int Attribute(const Driver& driver, CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  return driver.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS ? value : 0;
}

bool ReachesAllPeers(const Driver& driver, int gpu, int gpu_count) {
  for (int peer = 0; peer < gpu_count; ++peer) {
    int can = 0;
    if (peer == gpu) continue;
    if (driver.cuDeviceCanAccessPeer(&can, gpu, peer) != CUDA_SUCCESS || can == 0) return false;
    if (driver.cuDeviceCanAccessPeer(&can, peer, gpu) != CUDA_SUCCESS || can == 0) return false;
  }
  return true;
}

policies::DeviceModel EstimateModel(const Driver& driver, CUdevice device, const DeviceInfo& info) {
  policies::DeviceModel model;
  model.sm_count = Attribute(driver, device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  const double clock_khz = Attribute(driver, device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  const double scale =
      model.sm_count / kReferenceSms * (clock_khz > 0 ? clock_khz / kReferenceClockKhz : 1);
  const double tensor_scale = scale * (info.compute_capability >= 90 ? 1 : kAmpereTensorShare);
  model.tensor_flops *= tensor_scale;
  model.tf32_flops *= tensor_scale;
  model.fp32_flops *= scale;
  const bool has_fp8 = info.compute_capability >= kFirstFp8Capability;
  model.fp8_flops = has_fp8 ? model.fp8_flops * tensor_scale : model.fp32_flops;
  const double memory_khz = Attribute(driver, device, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
  const double bus_bytes =
      Attribute(driver, device, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8.0;
  // Twice: the memory moves data on both edges of its clock.
  if (memory_khz > 0 && bus_bytes > 0)
    model.hbm_bytes_per_s = kHbmEfficiency * 2e3 * memory_khz * bus_bytes;
  if (!info.peer_access) model.link_bytes_per_s = kHostLinkBytesPerSecond;
  model.transports.Add(policies::Transport::kNccl);
  if (info.peer_access) model.transports.Add(policies::Transport::kCopyEngine);
  if (info.peer_access && info.compute_capability >= kFirstBulkCopyCapability) {
    model.transports.Add(policies::Transport::kPeer).Add(policies::Transport::kHybrid);
  }
  model.copy_engines = Attribute(driver, device, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
  return model;
}

// "13.0" of 13000, as libraries number themselves.
std::string Version(int number, int major_unit, int minor_unit) {
  return absl::StrCat(number / major_unit, ".", number % major_unit / minor_unit);
}

// "580.159.03", or "" where the kernel module does not say.
std::string DriverRelease() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string word;
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  <date>"
  for (int words = 0; words < 16 && file >> word; ++words) {
    if (word[0] >= '0' && word[0] <= '9' && word.find('.') != std::string::npos) return word;
  }
  return "";
}

}  // namespace

std::string DescribeSoftware(const kernels::cuda::CudaApi& api) {
  int cuda = 0;
  api.driver.cuDriverGetVersion(&cuda);
  const auto cublaslt = static_cast<int>(api.cublaslt.cublasLtGetVersion());
  return absl::StrCat("driver ", DriverRelease(), ", CUDA ", Version(cuda, 1000, 10), ", cuBLASLt ",
                      Version(cublaslt, 10000, 100), ".", cublaslt % 100);
}

absl::StatusOr<DeviceInfo> ProbeDevice(const Driver& driver, int gpu, int gpu_count) {
  CUdevice device;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, gpu, cuDeviceGet, &device, gpu);
  char name[256] = {};
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, gpu, cuDeviceGetName, name, sizeof(name) - 1, device);
  CUuuid uuid;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, gpu, cuDeviceGetUuid, &uuid, device);
  size_t memory_bytes = 0;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, gpu, cuDeviceTotalMem, &memory_bytes, device);
  DeviceInfo info;
  info.gpu = gpu;
  info.backend = "cuda";
  info.name = name;
  static_assert(sizeof(uuid.bytes) == sizeof(info.uuid));
  std::memcpy(info.uuid.data(), uuid.bytes, sizeof(uuid.bytes));
  info.memory_bytes = memory_bytes;
  info.compute_capability =
      10 * Attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
      Attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  info.peer_access = ReachesAllPeers(driver, gpu, gpu_count);
  info.model = EstimateModel(driver, device, info);
  return info;
}

}  // namespace concert::daemon::cuda
