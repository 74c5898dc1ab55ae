#include "daemon/service/systemd_notify.h"

#include <systemd/sd-daemon.h>

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace concert::daemon {
namespace {

// A newline would begin another assignment.
std::string OneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

void NotifyReady(const std::string& status) {
  sd_notify(0, absl::StrCat("READY=1\nSTATUS=", OneLine(status)).c_str());
}

void NotifyStatus(const std::string& status) {
  sd_notify(0, absl::StrCat("STATUS=", OneLine(status)).c_str());
}

void NotifyStopping(const std::string& status) {
  sd_notify(0, absl::StrCat("STOPPING=1\nSTATUS=", OneLine(status)).c_str());
}

void NotifyExtendTimeout(std::chrono::microseconds timeout) {
  sd_notify(0, absl::StrCat("EXTEND_TIMEOUT_USEC=", timeout.count()).c_str());
}

std::chrono::microseconds WatchdogInterval() {
  uint64_t interval_us = 0;
  if (sd_watchdog_enabled(0, &interval_us) <= 0) return std::chrono::microseconds(0);
  return std::chrono::microseconds(interval_us);
}

void NotifyWatchdog() { sd_notify(0, "WATCHDOG=1"); }

}  // namespace concert::daemon
