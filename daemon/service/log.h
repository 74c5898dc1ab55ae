// The daemon's log: one line per message on stderr, with journald's <N> priority when systemd
// started us. Not for the hot path. Thread-safe; a line is one write(2).
#ifndef CONCERT_DAEMON_SERVICE_LOG_H_
#define CONCERT_DAEMON_SERVICE_LOG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proto/mutex.h"

namespace concert::daemon {

// Values are syslog priorities.
enum class LogLevel : int { kError = 3, kWarning = 4, kInfo = 6, kDebug = 7 };

std::optional<LogLevel> ParseLogLevel(
    std::string_view name);  // "error", "warning", "info", "debug"
void SetLogLevel(LogLevel least_severe);

// Control characters in `message` are escaped: it may quote what a client sent.
void Log(LogLevel level, std::string_view message);

// The line as Log writes it, with its newline.
std::string FormatLogLine(LogLevel level, std::string_view message, bool journald);

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
void LogLimited(LogLimiter& limiter, LogLevel level, std::string_view message);

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SERVICE_LOG_H_
