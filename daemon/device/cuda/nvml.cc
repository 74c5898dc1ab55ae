#include "daemon/device/cuda/nvml.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/device/uuid_text.h"

namespace concert::daemon::cuda {
namespace {

// nvml.h comes with a package of its own, which most toolkits are installed without. These have
// been as they are since NVML's first versions: its ABI only grows.
constexpr int kNvmlSuccess = 0;         // nvmlReturn_t
constexpr int kNvmlSmClock = 1;         // nvmlClockType_t
constexpr int kNvmlMemoryClock = 2;     // nvmlClockType_t
constexpr int kNvmlTemperatureGpu = 0;  // nvmlTemperatureSensors_t

}  // namespace

struct Nvml::Functions {
  struct Memory {  // nvmlMemory_t
    unsigned long long total, free, used;
  };

  int (*init)();
  int (*shutdown)();
  const char* (*error_string)(int);
  int (*handle_by_uuid)(const char*, nvmlDevice_st**);
  int (*memory_info)(nvmlDevice_st*, Memory*);
  int (*power_usage)(nvmlDevice_st*, unsigned*);           // milliwatts
  int (*enforced_power_limit)(nvmlDevice_st*, unsigned*);  // milliwatts
  int (*clock_info)(nvmlDevice_st*, int, unsigned*);       // MHz
  int (*temperature)(nvmlDevice_st*, int, unsigned*);      // degrees Celsius

  absl::Status Resolve(const kernels::cuda::SharedLibrary& library) {
    absl::Status status;
    const auto resolve = [&](const char* symbol, auto& function) {
      status.Update(library.Resolve(symbol, function));
    };
    resolve("nvmlInit_v2", init);
    resolve("nvmlShutdown", shutdown);
    resolve("nvmlErrorString", error_string);
    resolve("nvmlDeviceGetHandleByUUID", handle_by_uuid);
    resolve("nvmlDeviceGetMemoryInfo", memory_info);
    resolve("nvmlDeviceGetPowerUsage", power_usage);
    resolve("nvmlDeviceGetEnforcedPowerLimit", enforced_power_limit);
    resolve("nvmlDeviceGetClockInfo", clock_info);
    resolve("nvmlDeviceGetTemperature", temperature);
    return status;
  }
};

Nvml::Nvml(kernels::cuda::SharedLibrary library, std::unique_ptr<Functions> functions)
    : library_(std::move(library)), functions_(std::move(functions)) {}

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(std::span<const DeviceInfo> gpus,
                                                 const char* library) {
  auto opened = kernels::cuda::SharedLibrary::Open({library});
  if (!opened.ok()) return opened.status();
  auto functions = std::make_unique<Functions>();
  if (absl::Status status = functions->Resolve(*opened); !status.ok()) return status;
  if (const int result = functions->init(); result != kNvmlSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat(library, " does not start: ", functions->error_string(result)));
  }
  std::unique_ptr<Nvml> nvml(new Nvml(*std::move(opened), std::move(functions)));
  const MutexLock lock(nvml->mutex_);
  for (const DeviceInfo& info : gpus) {
    Gpu& gpu = nvml->gpus_.emplace_back();
    if (nvml->functions_->handle_by_uuid(UuidText(info.uuid).c_str(), &gpu.handle) != kNvmlSuccess)
      gpu.handle = nullptr;
  }
  return nvml;
}

Nvml::~Nvml() { functions_->shutdown(); }

Sensors Nvml::Read(size_t index, policies::Time now) {
  const MutexLock lock(mutex_);
  Gpu& gpu = gpus_[index];
  if (gpu.handle == nullptr) return {};
  if (!gpu.read || now - gpu.read_at > kLeastAgeNs) {
    gpu.sensors = Ask(gpu.handle);
    gpu.read_at = now;
    gpu.read = true;
  }
  return gpu.sensors;
}

Sensors Nvml::Ask(nvmlDevice_st* handle) const {
  const auto number = [&](auto function, auto... what) -> std::optional<unsigned> {
    unsigned value = 0;
    return function(handle, what..., &value) == kNvmlSuccess ? std::optional(value) : std::nullopt;
  };
  const auto watts = [](std::optional<unsigned> milliwatts) {
    return milliwatts.has_value() ? std::optional(*milliwatts * 1e-3) : std::nullopt;
  };
  Sensors sensors;
  Functions::Memory memory{};
  if (functions_->memory_info(handle, &memory) == kNvmlSuccess)
    sensors.memory_used_bytes = memory.used;
  sensors.power_watts = watts(number(functions_->power_usage));
  sensors.power_limit_watts = watts(number(functions_->enforced_power_limit));
  sensors.sm_clock_mhz = number(functions_->clock_info, kNvmlSmClock);
  sensors.memory_clock_mhz = number(functions_->clock_info, kNvmlMemoryClock);
  sensors.temperature_celsius = number(functions_->temperature, kNvmlTemperatureGpu);
  return sensors;
}

}  // namespace concert::daemon::cuda
