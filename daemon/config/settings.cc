#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "daemon/config/config.h"
#include "policies/seam/policy.h"
#include "policies/seam/transport.h"

namespace concert::daemon {
namespace {

std::vector<std::string> Devices() { return {"auto", "cuda", "sim"}; }
std::vector<std::string> SplitSumsModes() { return {"repeatable", "fastest"}; }
std::vector<std::string> ProgramEngines() { return {"auto", "step", "graph"}; }
std::vector<std::string> SimRacesModes() { return {"error", "warn", "off"}; }
std::vector<std::string> TransportChoices() {
  std::vector<std::string> choices = {"auto"};
  choices.insert(choices.end(), policies::kTransportNames.begin(), policies::kTransportNames.end());
  return choices;
}
std::vector<std::string> UnusableGpuModes() { return {"degraded", "error", "simulate"}; }
std::vector<std::string> LogLevels() { return {"error", "warning", "info", "debug"}; }
std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const policies::PolicyInfo& policy : policies::AllPolicies())
    names.emplace_back(policy.name);
  return names;
}

constexpr int64_t kMaxBytes = int64_t{1} << 50;
constexpr int64_t kHourMs = 3'600'000;

const std::array kSettings = {
    Setting{.key = "device",
            .member = &Config::device,
            .choices = Devices,
            .help = "Where work runs; auto takes cuda where a usable GPU is, else sim."},
    Setting{.key = "sim_gpus",
            .member = &Config::sim_gpus,
            .min = 1,
            .max = 16,
            .help = "GPUs of the simulated node."},
    Setting{
        .key = "sim_pacing",
        .member = &Config::sim_pacing,
        .help =
            "Simulated work takes the time it would on a GPU, or longer where the CPU needs it; "
            "false: only what the CPU needs."},
    Setting{.key = "sim_races",
            .member = &Config::sim_races,
            .choices = SimRacesModes,
            .help = "What the simulator does with an op that races with one in flight for the same "
                    "bytes, because a wait is missing: it fails, is logged, or runs."},
    Setting{.key = "unusable_gpu",
            .member = &Config::unusable_gpu,
            .choices = UnusableGpuModes,
            .help =
                "What auto does with an NVIDIA GPU that is there and cannot be used: it simulates "
                "with degraded health, refuses to start, or simulates and all is well."},
    Setting{.key = "nvtx",
            .member = &Config::nvtx,
            .help = "An NVTX range around each launch on a GPU, which Nsight Systems shows."},
    Setting{.key = "socket", .member = &Config::socket, .help = "Unix socket for clients."},
    Setting{.key = "admin_socket",
            .member = &Config::admin_socket,
            .help = "Unix socket for concertctl (gRPC), open to group concert-admin."},
    Setting{.key = "metrics_port",
            .member = &Config::metrics_port,
            .min = 0,
            .max = 65'535,
            .help = "Port of 127.0.0.1 where Prometheus finds /metrics; 0: none."},
    Setting{.key = "policy",
            .member = &Config::policy,
            .choices = PolicyNames,
            .documented = "a name from concertctl policy list",
            .help = "Scheduling policy at start; concertctl policy set changes it live."},
    Setting{
        .key = "depth",
        .member = &Config::depth,
        .min = 1,
        .max = 64,
        .help =
            "Plans in flight per GPU, of a priority class and higher ones, before the next is held "
            "back."},
    Setting{.key = "backlog_us",
            .member = &Config::backlog_us,
            .min = 0,
            .max = 100'000,
            .help = "Predicted work in flight below which more is launched in spite of depth, so "
                    "that short "
                    "kernels leave no gaps."},
    Setting{.key = "split_sums",
            .member = &Config::split_sums,
            .choices = SplitSumsModes,
            .help = "How group launches add the parts of a GEMM split along K: the same bits each "
                    "time, or as they come."},
    Setting{.key = "program_engine",
            .member = &Config::program_engine,
            .choices = ProgramEngines,
            .help =
                "What runs programs on a GPU: one kernel for the whole step where it can, a CUDA "
                "graph of their ops, or whichever gets more done."},
    Setting{.key = "low_class_sm_percent",
            .member = &Config::low_class_sm_percent,
            .min = 10,
            .max = 50,
            .help = "Of a GPU's SMs, what programs of lower classes have together while the high "
                    "class runs programs, too; of what arithmetic bounds always half. More makes "
                    "all together faster and the high class slower."},
    Setting{
        .key = "spin_us",
        .member = &Config::spin_us,
        .min = 0,
        .max = 1'000'000,
        .help =
            "How long an idle dispatcher polls before it sleeps, and before and behind the time "
            "at which work on its GPU is predicted to end; threads that launch collectives poll "
            "ten times as long; 0, or fewer than four CPUs: they sleep at once."},
    Setting{.key = "pin_dispatchers",
            .member = &Config::pin_dispatchers,
            .help = "Bind each dispatcher thread to a CPU of its own where there are enough."},
    Setting{.key = "wait_timeout_ms",
            .member = &Config::wait_timeout_ms,
            .min = 1,
            .max = kHourMs,
            .help = "How long an op waits for timelines before it fails."},
    Setting{.key = "collective_sms",
            .member = &Config::collective_sms,
            .min = 0,
            .max = 64,
            .help = "SMs that a collective is held to and that GEMMs leave to it while it runs; 0: "
                    "what its library takes, and GEMMs leave it nothing."},
    Setting{.key = "transport",
            .member = &Config::transport,
            .choices = TransportChoices,
            .help = "How collectives between GPUs move: auto, whatever is predicted to be best, or "
                    "one transport where it can carry them and NCCL where not."},
    Setting{.key = "collective_timeout_ms",
            .member = &Config::collective_timeout_ms,
            .min = 1,
            .max = kHourMs,
            .help = "How long a collective waits for a missing rank before all ranks fail."},
    Setting{.key = "drain_s",
            .member = &Config::drain_s,
            .min = 0,
            .max = 3600,
            .help = "How long a drain waits for accepted ops before they complete with a status."},
    Setting{.key = "ring_capacity",
            .member = &Config::ring_capacity,
            .min = 16,
            .max = 65'536,
            .help = "Descriptors of a session's ring; a power of two."},
    Setting{.key = "max_sessions",
            .member = &Config::max_sessions,
            .min = 1,
            .max = 65'536,
            .help = "Sessions at once."},
    Setting{.key = "max_sessions_per_uid",
            .member = &Config::max_sessions_per_uid,
            .min = 1,
            .max = 65'536,
            .help = "Sessions at once of one user."},
    Setting{.key = "max_buffer_bytes_per_uid",
            .member = &Config::max_buffer_bytes_per_uid,
            .min = 1 << 20,
            .max = kMaxBytes,
            .help = "Registered bytes of one user, over all its sessions."},
    Setting{.key = "max_buffers_per_uid",
            .member = &Config::max_buffers_per_uid,
            .min = 1,
            .max = 1 << 20,
            .help = "Registered buffers of one user, over all its sessions."},
    Setting{.key = "tune_store",
            .member = &Config::tune_store,
            .help = "Where measured GEMM kernels are kept (SQLite); in memory where it cannot be "
                    "written."},
    Setting{.key = "tune_idle",
            .member = &Config::tune_idle,
            .help = "Measure what clients have used lately whenever a GPU is idle; stops when an "
                    "op arrives."},
    Setting{.key = "tune_budget_s",
            .member = &Config::tune_budget_s,
            .min = 1,
            .max = 86'400,
            .help = "How long one tuning run may take unless concertctl tune run says otherwise."},
    Setting{.key = "log_level",
            .member = &Config::log_level,
            .choices = LogLevels,
            .help = "Least severe messages that are logged."},
};

}  // namespace

std::string Setting::EnvName() const {
  return absl::StrCat("CONCERT_", absl::AsciiStrToUpper(std::string(key)));
}

std::string Setting::FlagName() const {
  return absl::StrCat("--", absl::StrReplaceAll(std::string(key), {{"_", "-"}}));
}

std::string Setting::Allowed() const {
  if (std::holds_alternative<bool Config::*>(member)) return "true or false";
  if (std::holds_alternative<int64_t Config::*>(member)) return absl::StrCat(min, " to ", max);
  if (choices == nullptr) return "an absolute path";
  const std::vector<std::string> names = choices();
  if (names.size() < 2) return absl::StrJoin(names, "");
  return absl::StrCat(absl::StrJoin(names.begin(), names.end() - 1, ", "), " or ", names.back());
}

std::string Setting::Documented() const {
  return documented.empty() ? Allowed() : std::string(documented);
}

std::span<const Setting> AllSettings() { return kSettings; }

LoadedConfig::LoadedConfig() : origins(AllSettings().size(), "default") {}

}  // namespace concert::daemon
