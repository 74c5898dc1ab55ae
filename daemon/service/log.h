// The daemon's log: one line per message, to journald with its fields where systemd gave us its
// stream, else on stderr with the time in UTC. Not for the hot path. Thread-safe; a line is one
// write(2) or one message to journald.
#ifndef CONCERT_DAEMON_SERVICE_LOG_H_
#define CONCERT_DAEMON_SERVICE_LOG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/mutex.h"

namespace concert::daemon {

// Values are syslog priorities.
enum class LogLevel : int { kError = 3, kWarning = 4, kInfo = 6, kDebug = 7 };

std::optional<LogLevel> ParseLogLevel(
    std::string_view name);  // "error", "warning", "info", "debug"
void SetLogLevel(LogLevel least_severe);

// What a line is about, for `journalctl CONCERT_UID=1000`: names of capitals that begin with
// CONCERT_. Only journald gets them, so that the sentence says it, too.
struct LogField {
  std::string name, value;
};
using LogFields = std::vector<LogField>;

// Control characters in `message` and in the fields' values are escaped: they may quote what a
// client sent.
void Log(LogLevel level, std::string_view message, const LogFields& fields = {});

// The line as Log writes it to stderr, with its newline: "2026-11-22T21:05:07.042Z concertd info:
// message", or for journald "<6>message".
std::string FormatLogLine(LogLevel level, std::string_view message, bool journald,
                          absl::Time now = absl::Now());
// "NAME=value" for each field that journald gets.
std::vector<std::string> JournalFields(LogLevel level, std::string_view message,
                                       const LogFields& fields);

// For messages that a client can trigger: lets `burst` through at once and `per_second` on average.
// Thread-safe.
class LogLimiter {
 public:
  LogLimiter(double per_second, double burst)
      : per_second_(per_second), burst_(burst), tokens_(burst) {}

  // `now_ns` of any monotonic clock. When it allows one, `*suppressed` is how many it has refused
  // since.
  bool Allow(int64_t now_ns, uint64_t* suppressed);

 private:
  const double per_second_, burst_;
  Mutex mutex_;
  double tokens_ CONCERT_GUARDED_BY(mutex_);
  int64_t last_ns_ CONCERT_GUARDED_BY(mutex_) = 0;
  uint64_t suppressed_ CONCERT_GUARDED_BY(mutex_) = 0;
};

// Log, unless `limiter` is against it; says how many lines it kept back.
void LogLimited(LogLimiter& limiter, LogLevel level, std::string_view message,
                const LogFields& fields = {});

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SERVICE_LOG_H_
