#include "daemon/daemon.h"

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/clock.h"
#include "daemon/config/limits.h"
#include "daemon/quota/machine.h"
#include "daemon/service/log.h"
#include "daemon/service/systemd_notify.h"
#include "kernels/group/plan/compiler.h"

#ifndef CONCERT_VERSION
#error "CONCERT_VERSION comes from CMake"
#endif

namespace concert::daemon {
namespace {

kernels::ProgramEngine EngineOf(std::string_view name) {
  if (name == "step") return kernels::ProgramEngine::kStep;
  return name == "graph" ? kernels::ProgramEngine::kGraph : kernels::ProgramEngine::kAuto;
}

constexpr int kTickMs = 250;
constexpr int64_t kReportPeriodNs = 1'000'000'000;
// An idle dispatcher turns every half second.
constexpr int64_t kHeartbeatLimitNs = 3'000'000'000;
constexpr int kDrainTickMs = 5;
// After the drain's time: how long the ends of ops may take to reach their clients.
constexpr int64_t kGiveUpNs = 2'000'000'000;
// Then threads end, and the driver frees memory and contexts: a second or two for eight GPUs.
constexpr int64_t kTearDownNs = 10'000'000'000;

// Sessions take a socket and an eventfd per GPU: the default soft limit of 1,024 descriptors is
// soon reached.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::string Describe(const DeviceInfo& gpu) {
  return absl::StrCat("GPU ", gpu.gpu, ": ", gpu.name, ", ", gpu.model.sm_count, " SMs, ",
                      gpu.memory_bytes >> 20, " MiB",
                      gpu.model.group_kernel ? "" : ", without group launches");
}

SimRaces SimRacesOf(const Config& config) {
  if (config.sim_races == "off") return SimRaces::kOff;
  return config.sim_races == "warn" ? SimRaces::kWarn : SimRaces::kError;
}

// On few CPUs a client that a dispatcher wakes waits behind it for as long as that goes on polling:
// a copy beside a user that seals took 250 us instead of 60 (simulator, two CPUs).
int64_t SpinNs(const Config& config) {
  return AreEnoughToSpinOn(AllowedCpus()) ? config.spin_us * 1'000 : 0;
}

int64_t CollectiveSpinNs(const Config& config) {
  return SpinNs(config) * defaults::kCollectiveSpins;
}

EngineOptions EngineOptionsOf(const Config& config) {
  EngineOptions options;
  options.policy = config.policy;
  options.limits = LimitsOf(config);
  FitToMachine(options.limits);
  options.dispatcher.spin_ns = SpinNs(config);
  options.dispatcher.pin = config.pin_dispatchers;
  options.dispatcher.sim_races = SimRacesOf(config);
  options.dispatcher.scheduler.depth = static_cast<int>(config.depth);
  options.dispatcher.scheduler.backlog_ns = config.backlog_us * 1'000;
  options.dispatcher.scheduler.wait_timeout_ns = config.wait_timeout_ms * 1'000'000;
  options.dispatcher.scheduler.max_ops =
      static_cast<uint32_t>(options.limits[Resource::kOps].in_all);
  options.dispatcher.scheduler.max_queues =
      static_cast<uint32_t>(config.max_sessions) * CONCERT_MAX_QUEUES;
  options.issuer.spin_ns = CollectiveSpinNs(config);
  options.issuer.transport = policies::FindTransport(config.transport);
  options.issuer.rendezvous.timeout_ns = config.collective_timeout_ms * 1'000'000;
  return options;
}

void LogUnlessOk(const absl::Status& status) {
  if (!status.ok()) Log(LogLevel::kError, std::string(status.message()));
}

std::string Who(const std::string& name, uint32_t uid, int32_t pid) {
  return absl::StrCat(name, ", uid ", uid, ", pid ", pid);
}

std::string Describe(const Session& session) {
  return absl::StrCat("session ", session.id, " (", Who(session.name, session.uid, session.pid),
                      ")");
}

LogFields FieldsOf(const Session& session) {
  return {{"CONCERT_SESSION", absl::StrCat(session.id)},
          {"CONCERT_CLIENT", session.name},
          {"CONCERT_UID", absl::StrCat(session.uid)},
          {"CONCERT_PID", absl::StrCat(session.pid)}};
}

}  // namespace

Daemon::Daemon(const Config& config) : config_(config), policy_(config.policy) {}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const Config& config) {
  std::unique_ptr<Daemon> daemon(new Daemon(config));
  const absl::Status status = daemon->Open();
  if (!status.ok()) return status;
  return daemon;
}

absl::Status Daemon::Open() {
  RaiseDescriptorLimit();
  info_ = {.version = CONCERT_VERSION,
           .pid = static_cast<uint32_t>(getpid()),
           .started_at = NowNs(),
           .client_socket = config_.socket};
  if (absl::Status status = OpenDevices(); !status.ok()) return status;
  telemetry_ = std::make_unique<Telemetry>([] { return NowNs(); });
  std::vector<RecordRing*> rings;
  rings.reserve(static_cast<size_t>(choice_.node->gpu_count()));
  for (int gpu = 0; gpu < choice_.node->gpu_count(); ++gpu) {
    rings.push_back(telemetry_->AddRing(static_cast<uint8_t>(gpu), RecordRing::kDefaultCapacity,
                                        choice_.node->gpu(gpu).info().model.sm_count));
  }
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(EngineOptionsOf(config_), *choice_.node, rings);
  if (!engine.ok()) return engine.status();
  engine_ = *std::move(engine);
  tuning_ = std::make_unique<Tuning>(MakeTuningOptions(), *engine_);
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Create(MakeServerOptions(), *engine_);
  if (!server.ok()) return server.status();
  server_ = *std::move(server);
  if (const absl::Status status = OpenToOperators(); !status.ok()) return status;

  heartbeats_.resize(static_cast<size_t>(engine_->gpu_count()), {.seen_at = NowNs()});
  telemetry_->Start();
  engine_->Start();
  tuning_->Start();
  server_->Start();  // last: when a handshake is answered, all is up
  return absl::OkStatus();
}

absl::Status Daemon::OpenDevices() {
  absl::StatusOr<NodeChoice> choice =
      OpenNode({.device = config_.device,
                .sim_gpus = static_cast<int>(config_.sim_gpus),
                .collective_sms = static_cast<int>(config_.collective_sms),
                .collective_spin_ns = CollectiveSpinNs(config_),
                .sim_pacing = config_.sim_pacing,
                .split_sums = config_.split_sums == "fastest" ? kernels::SplitSums::kFastest
                                                              : kernels::SplitSums::kRepeatable,
                .program_engine = EngineOf(config_.program_engine),
                .low_class_sm_percent = static_cast<int>(config_.low_class_sm_percent),
                .nvtx = config_.nvtx,
                .refuse_unusable_gpu = config_.unusable_gpu == "error"});
  if (!choice.ok()) return choice.status();
  choice_ = *std::move(choice);
  info_.backend = choice_.node->gpu(0).info().backend;
  info_.backend_reason = choice_.why;
  Log(LogLevel::kInfo, choice_.why);
  if (!choice_.degraded.empty()) {
    if (config_.unusable_gpu != "simulate") info_.degraded = choice_.degraded;
    Log(LogLevel::kWarning,
        absl::StrCat(choice_.degraded,
                     "; what runs is simulated. Repair the driver, or say device = \"sim\""));
  }
  for (int gpu = 0; gpu < choice_.node->gpu_count(); ++gpu)
    Log(LogLevel::kDebug, Describe(choice_.node->gpu(gpu).info()));
  return absl::OkStatus();
}

absl::Status Daemon::OpenToOperators() {
  absl::StatusOr<std::unique_ptr<AdminServer>> admin =
      AdminServer::Start(config_.admin_socket, *this, *telemetry_, tuning_.get());
  if (!admin.ok()) return admin.status();
  admin_ = *std::move(admin);
  if (config_.metrics_port == 0) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<MetricsServer>> metrics =
      MetricsServer::Start(static_cast<uint16_t>(config_.metrics_port), *this, *telemetry_);
  if (!metrics.ok()) return metrics.status();
  metrics_ = *std::move(metrics);
  return absl::OkStatus();
}

// The GEMMs of the plans that ended last.
std::vector<TuningItem> Daemon::RecentGemms(int gpu) {
  std::vector<TuningItem> items;
  const auto snapshot = telemetry_->Snapshot();
  for (const RecentPlan& plan : snapshot->plans) {
    if (plan.gpu != gpu) continue;
    const auto listed = std::min<size_t>(plan.record.op_count, PlanRecord::kMaxListed);
    for (const PlanRecord::Listed& op : std::span(plan.record.ops).first(listed)) {
      if (op.problem.is_gemm()) items.push_back({.problem = op.problem});
    }
  }
  return items;
}

TuningOptions Daemon::MakeTuningOptions() {
  return {.store_path = config_.tune_store,
          .idle = config_.tune_idle,
          .budget_s = static_cast<double>(config_.tune_budget_s),
          .observed = [this](int gpu) { return RecentGemms(gpu); },
          .plan_group =
              [this](int gpu) {
                auto compiler =
                    std::make_shared<kernels::GroupCompiler>(choice_.node->gpu(gpu).info().model);
                return [compiler](std::span<const policies::Problem> problems, int blocks) {
                  compiler->Reclaim();  // a list is measured before the next is asked for
                  return compiler->Compile(problems, blocks, policies::GroupGoal::kThroughput);
                };
              }};
}

ServerOptions Daemon::MakeServerOptions() {
  ServerOptions options{.socket_path = config_.socket,
                        .ring_capacity = static_cast<uint32_t>(config_.ring_capacity)};
  // Clients cause these lines, so they are limited.
  const auto limiter = std::make_shared<LogLimiter>(20, 100);
  options.on_open = [this, limiter](const Session& session) {
    telemetry_->BeginSession(session.id, session.uid);
    LogLimited(*limiter, LogLevel::kInfo, Describe(session) + " opened", FieldsOf(session));
  };
  options.on_close = [this, limiter](const Session& session) {
    telemetry_->EndSession(session.id);
    LogLimited(*limiter, LogLevel::kInfo, Describe(session) + " ended", FieldsOf(session));
  };
  options.on_broken = [limiter](const Session& session, const kernels::Failure& why) {
    LogLimited(*limiter, LogLevel::kWarning,
               Describe(session) + " broke the protocol: " + why.ToString(), FieldsOf(session));
  };
  options.on_fault = [limiter](const Session& session, const kernels::Failure& why) {
    LogLimited(*limiter, LogLevel::kWarning, Describe(session) + ": " + why.ToString(),
               FieldsOf(session));
  };
  return options;
}

Daemon::~Daemon() {
  // Clients first, while the engine can still end their ops; then what the threads stand on.
  if (server_) server_->Stop();
  if (tuning_) tuning_->Stop();
  metrics_.reset();
  if (admin_) admin_->Stop();
  if (engine_) engine_->Stop();
  if (telemetry_) telemetry_->Stop();
}

bool Daemon::Serve(int stop_fd) {
  Log(LogLevel::kInfo,
      absl::StrCat("serving on ", config_.socket, ", admin on ", config_.admin_socket,
                   metrics_ ? absl::StrCat(", metrics on 127.0.0.1:", metrics_->port()) : "",
                   ", policy ", PolicyName()));
  NotifyReady(absl::StrCat(engine_->gpu_count(), " GPUs"));
  // Once: who goes on submitting is refused, and must not make a drain that succeeded look failed.
  bool drained = false;
  for (;;) {
    pollfd stop{.fd = stop_fd, .events = POLLIN, .revents = 0};
    const bool told = poll(&stop, draining() ? 0 : 1, draining() ? kDrainTickMs : kTickMs) > 0;
    if (told && !draining()) Drain(0).IgnoreError();
    Tick();
    if (!draining()) continue;
    const int64_t now = NowNs();
    const int64_t deadline = drain_deadline_ns_.load();
    drained = engine_->drained();
    if (drained) break;
    if (now > deadline && !gave_up_) {
      gave_up_ = true;
      Log(LogLevel::kWarning, "the drain's time is over; ending what still runs");
      LogUnlessOk(engine_->FailAll({CONCERT_ABI_CANCELLED,
                                    CONCERT_MESSAGE_DRAIN_TIMEOUT,
                                    {static_cast<uint64_t>(drain_limit_s_.load())}}));
    }
    if (now > deadline + kGiveUpNs) break;
  }
  Report();
  Log(LogLevel::kInfo, gave_up_ ? "stopping with work on the GPU" : "drained; stopping");
  return drained;
}

// Tells systemd how things stand. The watchdog hears from us only while every dispatcher turns.
void Daemon::Tick() {
  if (DispatchersAlive()) NotifyWatchdog();
  engine_->FreeReplaced();
  if (const int64_t now = NowNs(); now - reported_at_ >= kReportPeriodNs) {
    reported_at_ = now;
    Report();
  }
  const std::string status =
      absl::StrCat(server_->session_count(), " sessions, ", engine_->gpu_count(), " GPUs",
                   draining() ? ", draining" : "",
                   info_.degraded.empty() ? "" : ", degraded: a GPU cannot be used");
  if (status == notified_) return;
  notified_ = status;
  NotifyStatus(status);
}

// What has happened of late, to the log.
void Daemon::Report() {
  std::vector<ActivityReport::Gpu> gpus;
  for (int gpu = 0; gpu < engine_->gpu_count(); ++gpu) {
    const DispatcherGauges& gauges = engine_->dispatcher(gpu).gauges();
    // The dispatcher is the one to find out, since it must stop launching.
    const bool healthy = gauges.healthy.load(std::memory_order_relaxed);
    gpus.push_back({.gpu = gpu,
                    .launch_errors = gauges.launch_errors.load(std::memory_order_relaxed),
                    .fault = healthy ? "" : choice_.node->gpu(gpu).healthy().ToString()});
  }
  const ServerCounters& counters = server_->counters();
  const ActivityReport::Connections connections = {
      .refused = counters.refused.load(std::memory_order_relaxed),
      .silent = counters.hello_timeouts.load(std::memory_order_relaxed),
      .evicted = counters.evicted.load(std::memory_order_relaxed)};
  const auto who = [sessions = server_->Sessions()](uint32_t id) -> std::string {
    for (const SessionSummary& session : sessions) {
      if (session.id == id) return Who(session.name, session.uid, session.pid);
    }
    return "";
  };
  for (const LogLine& line : report_.Lines(telemetry_->Snapshot()->stats, gpus, connections, who))
    Log(line.level, line.text);
}

bool Daemon::DispatchersAlive() {
  const int64_t now = NowNs();
  bool alive = true;
  for (int gpu = 0; gpu < engine_->gpu_count(); ++gpu) {
    const uint64_t turns = engine_->dispatcher(gpu).gauges().turns.load(std::memory_order_relaxed);
    Heartbeat& heartbeat = heartbeats_[static_cast<size_t>(gpu)];
    if (turns != heartbeat.turns) heartbeat = {turns, now};
    alive &= now - heartbeat.seen_at < kHeartbeatLimitNs;
  }
  return alive;
}

DaemonInfo Daemon::Info() const { return info_; }

policies::Time Daemon::Now() const { return NowNs(); }

std::vector<DeviceStatus> Daemon::Devices() const {
  std::vector<DeviceStatus> devices;
  for (int gpu = 0; gpu < engine_->gpu_count(); ++gpu) {
    const DispatcherGauges& gauges = engine_->dispatcher(gpu).gauges();
    const uint32_t unfinished = gauges.unfinished_ops.load(std::memory_order_relaxed);
    const uint32_t ready = gauges.ready_ops.load(std::memory_order_relaxed);
    const SealedMemory::Bytes sealed = server_->sealed_bytes(gpu);
    devices.push_back({.info = choice_.node->gpu(gpu).info(),
                       .health = choice_.node->gpu(gpu).healthy(),
                       .plans_in_flight = gauges.plans_in_flight.load(std::memory_order_relaxed),
                       .ready_ops = ready,
                       .queued_ops = unfinished - std::min(unfinished, ready),
                       .sealed_bytes = sealed.held,
                       .sealed_saved_bytes = sealed.saved});
  }
  return devices;
}

std::vector<SessionInfo> Daemon::Sessions() const {
  std::vector<SessionInfo> sessions;
  for (const SessionSummary& summary : server_->Sessions()) {
    SessionInfo& session = sessions.emplace_back();
    session.id = summary.id;
    session.uid = summary.uid;
    session.pid = static_cast<uint32_t>(summary.pid);
    session.client_name = summary.name;
    session.connected_at = summary.connected_at_ns;
    session.queues = summary.queues;
    session.buffers = summary.buffers;
    session.registered_bytes = summary.buffer_bytes;
    session.sealed_bytes = summary.sealed_bytes;
    session.shared_bytes = summary.shared_bytes;
    session.gpus.assign(summary.gpus.begin(), summary.gpus.end());
    session.programs = summary.programs;
  }
  return sessions;
}

Accounts& Daemon::accounts() { return engine_->accounts(); }

std::vector<PolicyDescription> Daemon::Policies() const {
  std::vector<PolicyDescription> descriptions;
  for (const policies::PolicyInfo& info : policies::AllPolicies()) {
    descriptions.push_back({std::string(info.name), std::string(info.summary)});
  }
  return descriptions;
}

std::string Daemon::PolicyName() const {
  absl::MutexLock lock(&mutex_);
  return policy_;
}

absl::Status Daemon::SetPolicy(std::string_view name) {
  absl::MutexLock lock(&mutex_);
  const absl::Status status = engine_->SetPolicy(name);
  const absl::string_view wanted(name.data(), name.size());
  if (!status.ok()) {
    Log(LogLevel::kWarning, absl::StrCat("policy ", wanted, " was asked for: ", status.message()));
    return status;
  }
  Log(LogLevel::kInfo, absl::StrCat("policy ", policy_, " gives way to ", wanted));
  policy_ = name;
  return status;
}

absl::Status Daemon::Drain(uint32_t seconds) {
  const int64_t limit_s = seconds == 0 ? config_.drain_s : seconds;
  const int64_t limit_ns = limit_s * 1'000'000'000;
  int64_t expected = 0;
  if (!drain_deadline_ns_.compare_exchange_strong(expected, NowNs() + limit_ns)) {
    return absl::FailedPreconditionError("the daemon is draining already");
  }
  drain_limit_s_.store(limit_s);
  Log(LogLevel::kInfo, absl::StrCat("draining for at most ", limit_s, " s"));
  NotifyStopping("draining", std::chrono::duration_cast<std::chrono::microseconds>(
                                 std::chrono::nanoseconds(limit_ns + kGiveUpNs + kTearDownNs)));
  tuning_->BeginStop();
  server_->BeginDrain();
  LogUnlessOk(engine_->BeginDrain());
  return absl::OkStatus();
}

}  // namespace concert::daemon
