#include "daemon/service/log.h"

#include <sys/stat.h>
#include <unistd.h>

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

}  // namespace

std::optional<LogLevel> ParseLogLevel(std::string_view name) {
  for (const LogLevel level :
       {LogLevel::kError, LogLevel::kWarning, LogLevel::kInfo, LogLevel::kDebug}) {
    if (name == LevelName(level)) return level;
  }
  return std::nullopt;
}

void SetLogLevel(LogLevel least_severe) { g_least_severe = static_cast<int>(least_severe); }

std::string FormatLogLine(LogLevel level, std::string_view message, bool journald) {
  std::string line = journald ? absl::StrCat("<", static_cast<int>(level), ">")
                              : absl::StrCat("concertd ", LevelName(level), ": ");
  for (const char c : message) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      absl::StrAppendFormat(&line, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      line.push_back(c);
    }
  }
  line.push_back('\n');
  return line;
}

void Log(LogLevel level, std::string_view message) {
  if (static_cast<int>(level) > g_least_severe.load(std::memory_order_relaxed)) return;
  static const bool journald = StderrIsJournal();
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

void LogLimited(LogLimiter& limiter, LogLevel level, std::string_view message) {
  const int64_t now_ns =
      std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  uint64_t suppressed = 0;
  if (!limiter.Allow(now_ns, &suppressed)) return;
  std::string text(message);
  if (suppressed > 0) absl::StrAppend(&text, " (", suppressed, " similar lines were left out)");
  Log(level, text);
}

}  // namespace concert::daemon
