#include "daemon/service/log.h"

#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

// Of the line of code it would be the same for all.
#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace concert::daemon {
namespace {

std::atomic<int> g_least_severe{static_cast<int>(LogLevel::kInfo)};

// systemd sets JOURNAL_STREAM to "device:inode" of the stream it gave us (systemd.exec(5)).
bool StderrIsJournal() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat info;
  if (stream == nullptr || fstat(STDERR_FILENO, &info) != 0) return false;
  return absl::StrCat(info.st_dev, ":", info.st_ino) == stream;
}

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return "error";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kDebug:
      return "debug";
  }
  return "info";
}

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      absl::StrAppendFormat(&escaped, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      escaped.push_back(c);
    }
  }
  return escaped;
}

// False if journald does not take them, as in a container that has only its stream.
bool SendToJournal(const std::vector<std::string>& lines) {
  std::vector<iovec> parts;
  parts.reserve(lines.size());
  for (const std::string& line : lines)
    parts.push_back({const_cast<char*>(line.data()), line.size()});
  return sd_journal_sendv(parts.data(), static_cast<int>(parts.size())) == 0;
}

}  // namespace

std::optional<LogLevel> ParseLogLevel(std::string_view name) {
  for (const LogLevel level :
       {LogLevel::kError, LogLevel::kWarning, LogLevel::kInfo, LogLevel::kDebug}) {
    if (name == LevelName(level)) return level;
  }
  return std::nullopt;
}

void SetLogLevel(LogLevel least_severe) { g_least_severe = static_cast<int>(least_severe); }

std::string FormatLogLine(LogLevel level, std::string_view message, bool journald, absl::Time now) {
  if (journald) return absl::StrCat("<", static_cast<int>(level), ">", Escaped(message), "\n");
  return absl::StrCat(absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ", now, absl::UTCTimeZone()),
                      " concertd ", LevelName(level), ": ", Escaped(message), "\n");
}

std::vector<std::string> JournalFields(LogLevel level, std::string_view message,
                                       const LogFields& fields) {
  std::vector<std::string> lines = {absl::StrCat("MESSAGE=", Escaped(message)),
                                    absl::StrCat("PRIORITY=", static_cast<int>(level)),
                                    "SYSLOG_IDENTIFIER=concertd"};
  for (const LogField& field : fields)
    lines.push_back(absl::StrCat(field.name, "=", Escaped(field.value)));
  return lines;
}

void Log(LogLevel level, std::string_view message, const LogFields& fields) {
  if (static_cast<int>(level) > g_least_severe.load(std::memory_order_relaxed)) return;
  static const bool journald = StderrIsJournal();
  if (journald && !fields.empty() && SendToJournal(JournalFields(level, message, fields))) return;
  const std::string line = FormatLogLine(level, message, journald);
  // A log that cannot be written has nowhere to complain to.
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

bool LogLimiter::Allow(int64_t now_ns, uint64_t* suppressed) {
  MutexLock lock(mutex_);
  if (last_ns_ != 0) {
    tokens_ =
        std::min(burst_, tokens_ + static_cast<double>(now_ns - last_ns_) * 1e-9 * per_second_);
  }
  last_ns_ = now_ns;
  if (tokens_ < 1) {
    ++suppressed_;
    return false;
  }
  tokens_ -= 1;
  *suppressed = suppressed_;
  suppressed_ = 0;
  return true;
}

void LogLimited(LogLimiter& limiter, LogLevel level, std::string_view message,
                const LogFields& fields) {
  const int64_t now_ns =
      std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  uint64_t suppressed = 0;
  if (!limiter.Allow(now_ns, &suppressed)) return;
  std::string text(message);
  if (suppressed > 0) absl::StrAppend(&text, " (", suppressed, " similar lines were left out)");
  Log(level, text, fields);
}

}  // namespace concert::daemon
