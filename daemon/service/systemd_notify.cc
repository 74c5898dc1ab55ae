#include "daemon/service/systemd_notify.h"

#include <systemd/sd-daemon.h>

#include <algorithm>

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

void NotifyStopping(const std::string& status, std::chrono::microseconds at_most) {
  sd_notify(0, absl::StrCat("STOPPING=1\nSTATUS=", OneLine(status),
                            "\nEXTEND_TIMEOUT_USEC=", at_most.count())
                   .c_str());
}

void NotifyWatchdog() { sd_notify(0, "WATCHDOG=1"); }

}  // namespace concert::daemon
