// The UUID of a GPU, as nvidia-smi writes it and NVML takes it.
#ifndef CONCERT_DAEMON_DEVICE_UUID_TEXT_H_
#define CONCERT_DAEMON_DEVICE_UUID_TEXT_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace concert::daemon {

// "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx".
inline std::string UuidText(const std::array<uint8_t, 16>& uuid) {
  const std::string hex = absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(uuid.data()), uuid.size()));
  return absl::StrCat("GPU-", hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4), "-",
                      hex.substr(16, 4), "-", hex.substr(20));
}

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_DEVICE_UUID_TEXT_H_
