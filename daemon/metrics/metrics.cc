#include "daemon/metrics/metrics.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/device/uuid_text.h"
#include "daemon/service/printable.h"

namespace concert::daemon {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Families = std::vector<MetricFamily>;
using Labels = std::vector<ClientMetric::Label>;

// The family that following samples belong to.
MetricFamily& AddFamily(Families& families, MetricType type, std::string name, std::string help) {
  return families.emplace_back(
      MetricFamily{"concert_" + std::move(name), std::move(help), type, {}});
}

void AddSample(MetricFamily& family, Labels labels, double value) {
  ClientMetric& metric = family.metric.emplace_back();
  metric.label = std::move(labels);
  (family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
}

void AddGauge(Families& families, std::string name, std::string help, double value) {
  AddSample(AddFamily(families, MetricType::Gauge, std::move(name), std::move(help)), {}, value);
}

// A sample of value 1 whose labels are the message.
void AddInfo(Families& families, std::string name, std::string help, Labels labels) {
  AddSample(AddFamily(families, MetricType::Gauge, std::move(name), std::move(help)),
            std::move(labels), 1);
}

ClientMetric::Label GpuLabel(int gpu) { return {"gpu", absl::StrCat(gpu)}; }

ClientMetric::Label UserLabel(uint32_t uid) {
  return {"uid", uid == Stats::kOtherUsers ? "other" : absl::StrCat(uid)};
}

// One row per figure of OpTotals; each is a family of users and one of sessions.
struct OpFigure {
  const char* name;
  const char* help;
  double (*value)(const OpTotals&);
};
constexpr std::array kOpFigures = {
    OpFigure{"ops_total", "Ops that ended, failed ones among them.",
             [](const OpTotals& ops) { return static_cast<double>(ops.op_count); }},
    OpFigure{"failed_ops_total", "Ops that failed; they count in no other figure but ops_total.",
             [](const OpTotals& ops) { return static_cast<double>(ops.failed_op_count); }},
    OpFigure{"gpu_seconds_total",
             "GPU time of ops: ops that run side by side divide their plan's time.",
             [](const OpTotals& ops) { return ops.gpu_seconds; }},
    OpFigure{"moved_bytes_total",
             "Bytes that ops read and wrote, each input and output once, and sent over links.",
             [](const OpTotals& ops) { return static_cast<double>(ops.bytes); }},
    OpFigure{"flops_total", "Floating-point operations of ops.",
             [](const OpTotals& ops) { return static_cast<double>(ops.flops); }},
    OpFigure{"queue_wait_seconds_total", "Time of ops from ready to started.",
             [](const OpTotals& ops) { return ops.queue_wait_seconds; }},
    OpFigure{"co_run_ops_total", "Ops that shared their plan with others.",
             [](const OpTotals& ops) { return static_cast<double>(ops.co_run_op_count); }},
    OpFigure{"interference_seconds_total",
             "How much longer ops of a co-run set ran than they were predicted to take alone.",
             [](const OpTotals& ops) { return ops.interference_seconds; }},
};

void AddDaemon(DaemonControl& control, double start_time_s, size_t session_count,
               Families& families) {
  const DaemonInfo info = control.Info();
  AddInfo(families, "build_info", "Version and device of the daemon; sim: times are a model's.",
          {{"version", info.version}, {"device", info.backend}});
  AddInfo(families, "policy_info", "The scheduling policy in force.",
          {{"policy", control.PolicyName()}});
  AddGauge(families, "start_time_seconds", "When the daemon started, in seconds since 1970.",
           start_time_s);
  AddGauge(families, "degraded",
           "1 if an NVIDIA GPU cannot be used and a simulator stands in for it.",
           info.degraded.empty() ? 0 : 1);
  AddGauge(families, "draining", "1 if the daemon takes no new ops.", control.draining() ? 1 : 0);
  AddGauge(families, "sessions", "Connected sessions.", static_cast<double>(session_count));
}

void AddDevices(const std::vector<DeviceStatus>& devices, Families& families) {
  MetricFamily& gpu_info =
      AddFamily(families, MetricType::Gauge, "gpu_info", "What a GPU is; uuid as nvidia-smi's.");
  for (const DeviceStatus& device : devices) {
    AddSample(gpu_info,
              {GpuLabel(device.info.gpu),
               {"uuid", UuidText(device.info.uuid)},
               {"name", Printable(device.info.name)}},
              1);
  }
  struct Gauge {
    const char* name;
    const char* help;
    double (*value)(const DeviceStatus&);
  };
  static constexpr std::array kGauges = {
      Gauge{"gpu_healthy", "0 if the GPU has faulted; then all its ops fail.",
            [](const DeviceStatus& gpu) { return gpu.health.ok() ? 1.0 : 0.0; }},
      Gauge{"gpu_memory_bytes", "Memory of the GPU.",
            [](const DeviceStatus& gpu) { return static_cast<double>(gpu.info.memory_bytes); }},
      Gauge{"gpu_plans_in_flight", "Plans launched and not ended.",
            [](const DeviceStatus& gpu) { return static_cast<double>(gpu.plans_in_flight); }},
      Gauge{"gpu_ready_ops", "Ops that could run.",
            [](const DeviceStatus& gpu) { return static_cast<double>(gpu.ready_ops); }},
      Gauge{"gpu_queued_ops", "Ops that wait for others or for timelines.",
            [](const DeviceStatus& gpu) { return static_cast<double>(gpu.queued_ops); }},
      Gauge{"gpu_sealed_bytes", "Memory of sealed buffers, which equal ones of a user share.",
            [](const DeviceStatus& gpu) { return static_cast<double>(gpu.sealed_bytes); }},
      Gauge{"gpu_sealed_saved_bytes",
            "Memory that sealed buffers would take more if each had its own.",
            [](const DeviceStatus& gpu) { return static_cast<double>(gpu.sealed_saved_bytes); }},
  };
  for (const Gauge& gauge : kGauges) {
    MetricFamily& family = AddFamily(families, MetricType::Gauge, gauge.name, gauge.help);
    for (const DeviceStatus& device : devices)
      AddSample(family, {GpuLabel(device.info.gpu)}, gauge.value(device));
  }
}

void AddPlans(const Stats& stats, Families& families) {
  MetricFamily& plans = AddFamily(families, MetricType::Counter, "plans_total",
                                  "Plans that ended, by how many ops they had.");
  for (const auto& [gpu, device] : stats.devices) {
    for (int i = 0; i < policies::kDegreeCount; ++i) {
      const auto degree = static_cast<policies::Degree>(i);
      const std::string ops =
          degree == policies::Degree::kMany ? "more" : absl::StrCat(policies::CountOf(degree));
      AddSample(plans, {GpuLabel(gpu), {"max_ops", ops}},
                static_cast<double>(device.plans_by_degree[static_cast<size_t>(i)]));
    }
  }
  struct Figure {
    const char* name;
    const char* help;
    double (*value)(const DeviceStats&);
  };
  static constexpr std::array kFigures = {
      Figure{"plan_seconds_total", "What plans took.",
             [](const DeviceStats& gpu) { return gpu.actual_seconds; }},
      Figure{"plan_predicted_seconds_total", "What plans were predicted to take.",
             [](const DeviceStats& gpu) { return gpu.predicted_seconds; }},
      Figure{"plan_serial_seconds_total",
             "What the ops of plans were predicted to take one after the other.",
             [](const DeviceStats& gpu) { return gpu.serial_seconds; }},
      Figure{"lost_records_total",
             "Records that the statistics miss because they could not keep up.",
             [](const DeviceStats& gpu) { return static_cast<double>(gpu.dropped_record_count); }},
  };
  for (const Figure& figure : kFigures) {
    MetricFamily& family = AddFamily(families, MetricType::Counter, figure.name, figure.help);
    for (const auto& [gpu, device] : stats.devices)
      AddSample(family, {GpuLabel(gpu)}, figure.value(device));
  }
}

void AddFailures(const Stats& stats, Families& families) {
  MetricFamily& family =
      AddFamily(families, MetricType::Counter, "failed_ops_total", "Ops that failed, by status.");
  for (const auto& [gpu, device] : stats.devices) {
    for (uint16_t status = 1; status < OpStats::kStatusCount; ++status) {
      AddSample(family, {GpuLabel(gpu), {"status", std::string(StatusName(status))}},
                static_cast<double>(device.ops.failures[status]));
    }
  }
}

// Buckets end at powers of two of a nanosecond, where telemetry's do, from 1 us to 1 s.
void AddHistogram(const Stats& stats, std::string name, std::string help,
                  const Histogram OpStats::*member, Families& families) {
  constexpr int kFirst = 10, kLast = 30;
  MetricFamily& family =
      AddFamily(families, MetricType::Histogram, std::move(name), std::move(help));
  for (const auto& [gpu, device] : stats.devices) {
    const Histogram& durations = device.ops.*member;
    ClientMetric& metric = family.metric.emplace_back();
    metric.label = {GpuLabel(gpu)};
    metric.histogram.sample_count = durations.count();
    metric.histogram.sample_sum = static_cast<double>(durations.sum_ns()) * 1e-9;
    for (int octave = kFirst; octave <= kLast; ++octave) {
      metric.histogram.bucket.push_back(
          {durations.CountBelow(octave), static_cast<double>(int64_t{1} << octave) / 1e9});
    }
  }
}

void AddUsers(const Stats& stats, Families& families) {
  const Stats::ByUser users = stats.Users();
  for (const OpFigure& figure : kOpFigures) {
    MetricFamily& family =
        AddFamily(families, MetricType::Counter, absl::StrCat("user_", figure.name), figure.help);
    for (const auto& [user, ops] : users)
      AddSample(family, {UserLabel(user.first), GpuLabel(user.second)}, figure.value(ops));
  }
}

Labels SessionLabels(const SessionInfo& session) {
  return {{"session", absl::StrCat(session.id)},
          UserLabel(session.uid),
          {"client", Printable(session.client_name)}};
}

void AddSessions(const std::vector<SessionInfo>& sessions, const Stats& stats, Families& families) {
  MetricFamily& buffers = AddFamily(families, MetricType::Gauge, "session_buffer_bytes",
                                    "Registered bytes of a session.");
  for (const SessionInfo& session : sessions)
    AddSample(buffers, SessionLabels(session), static_cast<double>(session.registered_bytes));
  for (const OpFigure& figure : kOpFigures) {
    MetricFamily& family = AddFamily(families, MetricType::Counter,
                                     absl::StrCat("session_", figure.name), figure.help);
    for (const SessionInfo& session : sessions) {
      const auto known = stats.sessions.find(session.id);
      if (known == stats.sessions.end()) continue;
      for (const auto& [gpu, ops] : known->second.gpus) {
        Labels labels = SessionLabels(session);
        labels.push_back(GpuLabel(gpu));
        AddSample(family, std::move(labels), figure.value(ops));
      }
    }
  }
}

void AddQuotas(const Accounts& accounts, Families& families) {
  MetricFamily used =
      MetricFamily{"concert_quota_used", "Held by all users, of a quota.", MetricType::Gauge, {}};
  MetricFamily limit = MetricFamily{
      "concert_quota_limit", "What all users may hold, of a quota.", MetricType::Gauge, {}};
  for (const ResourceInfo& info : AllResources()) {
    const Labels labels = {{"resource", std::string(info.name)}};
    AddSample(used, labels, static_cast<double>(accounts.node().of(info.resource)));
    const uint64_t in_all = accounts.limits()[info.resource].in_all;
    if (in_all != kUnlimited) AddSample(limit, labels, static_cast<double>(in_all));
  }
  families.push_back(std::move(used));
  families.push_back(std::move(limit));
}

}  // namespace

Metrics::Metrics(DaemonControl& control, Telemetry& telemetry)
    : control_(control), telemetry_(telemetry) {
  const double uptime_s = static_cast<double>(control.Now() - control.Info().started_at) * 1e-9;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  start_time_s_ = std::chrono::duration<double>(now).count() - uptime_s;
}

std::vector<MetricFamily> Metrics::Collect() const {
  Families families;
  const auto snapshot = telemetry_.Snapshot();
  const Stats& stats = snapshot->stats;
  std::vector<SessionInfo> sessions = control_.Sessions();
  AddDaemon(control_, start_time_s_, sessions.size(), families);
  AddDevices(control_.Devices(), families);
  AddPlans(stats, families);
  AddFailures(stats, families);
  AddHistogram(stats, "queue_wait_seconds", "Time of ops from ready to started.",
               &OpStats::queue_wait, families);
  AddHistogram(stats, "run_time_seconds", "Time of ops from started to seen complete.",
               &OpStats::run_time, families);
  AddUsers(stats, families);
  std::sort(sessions.begin(), sessions.end(), [](const SessionInfo& a, const SessionInfo& b) {
    return std::pair(a.connected_at, a.id) < std::pair(b.connected_at, b.id);
  });
  if (sessions.size() > kMaxSessions) sessions.resize(kMaxSessions);
  AddSessions(sessions, stats, families);
  AddQuotas(control_.accounts(), families);
  std::erase_if(families, [](const MetricFamily& family) { return family.metric.empty(); });
  return families;
}

}  // namespace concert::daemon
