// What devices and clients call themselves, as operators may see it.
#ifndef CONCERT_DAEMON_ADMIN_PRINTABLE_H_
#define CONCERT_DAEMON_ADMIN_PRINTABLE_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace concert::daemon::admin {

// protobuf and Prometheus take UTF-8 only and terminals must not see control characters; clients
// choose their names.
inline std::string Printable(const std::string& text) { return absl::CHexEscape(text); }

// As nvidia-smi writes it.
inline std::string UuidText(const std::array<uint8_t, 16>& uuid) {
  const std::string hex = absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(uuid.data()), uuid.size()));
  return absl::StrCat("GPU-", hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4), "-",
                      hex.substr(16, 4), "-", hex.substr(20));
}

}  // namespace concert::daemon::admin

#endif  // CONCERT_DAEMON_ADMIN_PRINTABLE_H_
