#include "daemon/service/activity_report.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace concert::daemon {
namespace {

std::string OpsText(uint64_t count) { return absl::StrCat(count, count == 1 ? " op" : " ops"); }

// "2 INVALID_ARGUMENT, 1 CANCELLED"
std::string StatusesText(const std::array<uint64_t, OpStats::kStatusCount>& failures) {
  std::string text;
  for (int status = 1; status < OpStats::kStatusCount; ++status) {
    if (failures[status] == 0) continue;
    const std::string_view name = StatusName(static_cast<uint16_t>(status));
    absl::StrAppend(&text, text.empty() ? "" : ", ", failures[status], " ",
                    absl::string_view(name.data(), name.size()));
  }
  return text;
}

}  // namespace

std::vector<LogLine> ActivityReport::Lines(const Stats& stats, const std::vector<Gpu>& gpus,
                                           const Connections& connections, const Who& who) {
  std::vector<LogLine> lines;
  AddGpus(gpus, lines);
  AddConnections(connections, lines);
  AddFailures(stats, who, lines);
  AddWork(stats, lines);
  return lines;
}

void ActivityReport::AddGpus(const std::vector<Gpu>& gpus, std::vector<LogLine>& lines) {
  gpus_.resize(gpus.size());
  for (size_t i = 0; i < gpus.size(); ++i) {
    const Gpu& before = gpus_[i];
    if (before.fault.empty() && !gpus[i].fault.empty()) {
      lines.push_back({LogLevel::kError,
                       absl::StrCat("GPU ", gpus[i].gpu,
                                    " has faulted and runs nothing any more; restart the daemon: ",
                                    gpus[i].fault)});
    }
    const uint64_t refused = gpus[i].launch_errors - before.launch_errors;
    if (refused > 0) {
      lines.push_back({LogLevel::kWarning, absl::StrCat("GPU ", gpus[i].gpu, " refused ", refused,
                                                        refused == 1 ? " launch" : " launches",
                                                        "; their ops failed with INTERNAL")});
    }
  }
  gpus_ = gpus;
}

void ActivityReport::AddConnections(const Connections& connections, std::vector<LogLine>& lines) {
  const Connections before = std::exchange(connections_, connections);
  const std::pair<uint64_t, const char*> counts[] = {
      {connections.evicted - before.evicted,
       "said no Hello and gave way to others: a user or the node is at its limit of connections"},
      {connections.silent - before.silent, "said no Hello in time and were closed"},
      {connections.refused - before.refused, "were refused; their clients have the reasons"}};
  for (const auto& [count, what] : counts) {
    if (count > 0)
      lines.push_back({LogLevel::kInfo, absl::StrCat("connections: ", count, " ", what)});
  }
}

void ActivityReport::AddFailures(const Stats& stats, const Who& who, std::vector<LogLine>& lines) {
  size_t sessions = 0;
  std::map<uint32_t, Failures> now;  // without sessions that are not listed any more
  for (const auto& [id, session] : stats.sessions) {
    if (session.ops.failed_op_count == 0) continue;
    Failures added = now[id] = session.ops.failures;
    if (const auto before = failures_.find(id); before != failures_.end()) {
      for (size_t i = 0; i < added.size(); ++i) added[i] -= before->second[i];
    }
    const uint64_t failed = std::accumulate(added.begin(), added.end(), uint64_t{0});
    if (failed == 0 || ++sessions > kMaxSessions) continue;
    const std::string name = who(id);
    lines.push_back(
        {LogLevel::kInfo, absl::StrCat("session ", id, name.empty() ? "" : " (", name,
                                       name.empty() ? "" : ")", ": ", OpsText(failed), " failed (",
                                       StatusesText(added), "); its client has the reasons")});
  }
  failures_ = std::move(now);
  if (sessions > kMaxSessions) {
    lines.push_back({LogLevel::kInfo, absl::StrCat("ops of ", sessions - kMaxSessions,
                                                   " more sessions failed: concertctl stats")});
  }
}

void ActivityReport::AddWork(const Stats& stats, std::vector<LogLine>& lines) {
  for (const auto& [gpu, device] : stats.devices) {
    const Work now = {.ops = device.ops.op_count,
                      .plans = device.plan_count,
                      .co_run_plans = device.co_run_plan_count,
                      .dropped_records = device.dropped_record_count,
                      .actual_s = device.actual_seconds,
                      .predicted_s = device.predicted_seconds};
    const Work before = std::exchange(work_[gpu], now);
    if (now.ops == before.ops) continue;
    lines.push_back(
        {LogLevel::kDebug,
         absl::StrFormat(
             "GPU %d: %s in %d plans, %d of them with several ops; %.3f ms taken, %.3f ms "
             "predicted; %d records lost",
             gpu, OpsText(now.ops - before.ops), now.plans - before.plans,
             now.co_run_plans - before.co_run_plans, (now.actual_s - before.actual_s) * 1e3,
             (now.predicted_s - before.predicted_s) * 1e3,
             now.dropped_records - before.dropped_records)});
  }
}

}  // namespace concert::daemon
