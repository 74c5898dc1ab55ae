#include "daemon/tuning/environment.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace concert::daemon {

namespace {

std::string Describe(const DeviceInfo& device) {
  return absl::StrCat(device.name, ", compute capability ", device.compute_capability, ", ",
                      device.model.sm_count, " SMs, ", device.software);
}

Environment Name(std::string description) {
  Environment environment{.name = "", .description = std::move(description)};
  // FNV-1a with its 64-bit constants: the same in every build, unlike absl::Hash.
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : environment.description) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  }
  environment.name = absl::StrCat(absl::Hex(hash, absl::kZeroPad16));
  return environment;
}

}  // namespace

Environment EnvironmentOf(const DeviceInfo& device) {
  return Name(absl::StrCat(Describe(device), ", schema ", kStoreSchemaVersion, ", measurement ",
                           kMeasurementVersion));
}

Environment EnvironmentOfCollectives(Node& node) {
  std::string description = absl::StrCat(node.gpu_count(), " GPUs: ");
  for (int gpu = 0; gpu < node.gpu_count(); ++gpu) {
    const std::string one = Describe(node.gpu(gpu).info());
    // Nodes of equal GPUs are the rule.
    if (!absl::StrContains(description, one)) absl::StrAppend(&description, one, ", ");
  }
  return Name(absl::StrCat(description, node.collective_software(), ", collective_sms ",
                           node.gpu(0).info().model.collective_sms, ", schema ",
                           kStoreSchemaVersion, ", measurement of collectives ",
                           kCollectiveMeasurementVersion));
}

}  // namespace concert::daemon
