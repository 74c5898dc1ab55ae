// What concertd tells systemd (sd_notify(3)). All of it does nothing when systemd did not start us.
// Thread-safe.
#ifndef CONCERT_DAEMON_SERVICE_SYSTEMD_NOTIFY_H_
#define CONCERT_DAEMON_SERVICE_SYSTEMD_NOTIFY_H_

#include <chrono>
#include <string>

namespace concert::daemon {

// Everything is up: GPUs, sockets, threads.
void NotifyReady(const std::string& status);
// One line for `systemctl status`, e.g. "3 sessions, 2 GPUs".
void NotifyStatus(const std::string& status);
// From here on stopping takes `at_most`, whatever the unit's TimeoutStopSec says: that counts from
// here, too, and kills who takes longer.
void NotifyStopping(const std::string& status, std::chrono::microseconds at_most);
// Call it from a heartbeat of the threads that do the work, never from a timer, or a hung daemon
// looks well.
void NotifyWatchdog();

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SERVICE_SYSTEMD_NOTIFY_H_
