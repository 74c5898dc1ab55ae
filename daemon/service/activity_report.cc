#include "daemon/service/activity_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace concert::daemon {
namespace {

std::string OpsText(uint64_t count) { return absl::StrCat(count, count == 1 ? " op" : " ops"); }

// "2 INVALID_ARGUMENT, 1 CANCELLED"
std::string FailuresText(const OpStats& ops) {
  std::string text;
  for (int status = 1; status < OpStats::kStatusCount; ++status) {
    if (ops.failures[status] == 0) continue;
    const std::string_view name = StatusName(static_cast<uint16_t>(status));
    absl::StrAppend(&text, text.empty() ? "" : ", ", ops.failures[status], " ",
                    absl::string_view(name.data(), name.size()));
  }
  return text;
}

}  // namespace

std::vector<LogLine> ActivityReport::Lines(const Stats& stats, const std::vector<Gpu>& gpus) {
  std::vector<LogLine> lines;
  Stats added = stats;
  added.Subtract(before_);
  before_ = stats;
  AddGpus(gpus, lines);
  AddFailures(added, lines);
  AddWork(added, lines);
  return lines;
}

void ActivityReport::AddGpus(const std::vector<Gpu>& gpus, std::vector<LogLine>& lines) {
  gpus_before_.resize(gpus.size());
  for (size_t i = 0; i < gpus.size(); ++i) {
    const Gpu& before = gpus_before_[i];
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
  gpus_before_ = gpus;
}

void ActivityReport::AddFailures(const Stats& added, std::vector<LogLine>& lines) {
  size_t sessions = 0;
  for (const auto& [id, session] : added.sessions) {
    const uint64_t failed = session.ops.FailureCount();
    if (failed == 0 || ++sessions > kMaxSessions) continue;
    lines.push_back({LogLevel::kInfo,
                     absl::StrCat("session ", id, ": ", OpsText(failed), " failed (",
                                  FailuresText(session.ops), "); its client has the reasons")});
  }
  if (sessions > kMaxSessions) {
    lines.push_back({LogLevel::kInfo, absl::StrCat("ops of ", sessions - kMaxSessions,
                                                   " more sessions failed: concertctl stats")});
  }
}

void ActivityReport::AddWork(const Stats& added, std::vector<LogLine>& lines) {
  for (const auto& [gpu, device] : added.devices) {
    if (device.ops.op_count == 0) continue;
    lines.push_back(
        {LogLevel::kDebug,
         absl::StrFormat("GPU %d: %s in %d plans, %d of them in company; %.3f ms taken, %.3f ms "
                         "predicted; %d records lost",
                         gpu, OpsText(device.ops.op_count), device.plan_count,
                         device.company_plan_count, device.actual_seconds * 1e3,
                         device.predicted_seconds * 1e3, device.dropped_record_count)});
  }
}

}  // namespace concert::daemon
