#include "daemon/tuning/environment.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace concert::daemon {

Environment EnvironmentOf(const DeviceInfo& device) {
  Environment environment;
  environment.description =
      absl::StrCat(device.name, ", compute capability ", device.compute_capability, ", ",
                   device.model.sm_count, " SMs, ", device.software, ", schema ",
                   kStoreSchemaVersion, ", measurement ", kMeasurementVersion);
  // FNV-1a with its 64-bit constants: the same in every build, unlike absl::Hash.
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : environment.description) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  }
  environment.name = absl::StrCat(absl::Hex(hash, absl::kZeroPad16));
  return environment;
}

}  // namespace concert::daemon
