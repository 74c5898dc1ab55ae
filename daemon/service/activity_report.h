// What has happened since the last look, as lines for the log: made from counters, so that the hot
// path writes none. Not thread-safe.
#ifndef CONCERT_DAEMON_SERVICE_ACTIVITY_REPORT_H_
#define CONCERT_DAEMON_SERVICE_ACTIVITY_REPORT_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "daemon/service/log.h"
#include "daemon/telemetry/stats.h"

namespace concert::daemon {

struct LogLine {
  LogLevel level;
  std::string text;
  bool operator==(const LogLine&) const = default;
};

class ActivityReport {
 public:
  // A GPU as its dispatcher's gauges and its device say.
  struct Gpu {
    int gpu = 0;
    uint64_t launch_errors = 0;
    std::string fault;  // empty: it works
  };
  // Connections that ended before they were sessions, since the daemon started.
  struct Connections {
    uint64_t refused = 0;  // a limit, or no memory
    uint64_t silent = 0;   // no Hello in time
    uint64_t evicted = 0;  // silent ones that gave way to others
  };
  // "server-a, uid 1000, pid 42" of a session; empty: it has gone.
  using Who = std::function<std::string(uint32_t session)>;
  // Sessions with failures that one report names; the rest it counts.
  static constexpr size_t kMaxSessions = 8;

  // Errors: GPUs that have faulted. Warnings: launches that a device refused. Info: ops that have
  // failed, by session and status, and connections that were turned away. Debug: what every GPU has
  // done. Nothing has happened: no line. `who` is asked for sessions that are named.
  std::vector<LogLine> Lines(const Stats& stats, const std::vector<Gpu>& gpus,
                             const Connections& connections, const Who& who);

 private:
  using Failures = std::array<uint64_t, OpStats::kStatusCount>;  // by status
  struct Work {
    uint64_t ops = 0, plans = 0, co_run_plans = 0, dropped_records = 0;
    double actual_s = 0, predicted_s = 0;
  };

  void AddGpus(const std::vector<Gpu>& gpus, std::vector<LogLine>& lines);
  void AddConnections(const Connections& connections, std::vector<LogLine>& lines);
  void AddFailures(const Stats& stats, const Who& who, std::vector<LogLine>& lines);
  void AddWork(const Stats& stats, std::vector<LogLine>& lines);

  // As of the last report. Not the statistics themselves, whose histograms take 9 KB a session.
  std::map<uint32_t, Failures> failures_;  // of sessions that have some
  std::map<uint8_t, Work> work_;           // by GPU
  std::vector<Gpu> gpus_;
  Connections connections_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SERVICE_ACTIVITY_REPORT_H_
