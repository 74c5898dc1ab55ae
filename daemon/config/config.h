// concertd's settings. One table (settings.cc) has a row per setting; the TOML file, the
// environment, the command line, --print-config, deploy/concert.toml and the table in
// docs/operations.md and concert.toml(5) all come from it. To add a setting, add a member here and
// a row there; a default that a part of the daemon needs, too, stands in defaults.h.
//
// Precedence: flag > environment > file > default. A setting `spin_us` is the key `spin_us` in the
// file, the variable CONCERT_SPIN_US and the flag --spin-us.
#ifndef CONCERT_DAEMON_CONFIG_CONFIG_H_
#define CONCERT_DAEMON_CONFIG_CONFIG_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/config/defaults.h"

namespace concert::daemon {

struct Config {
  std::string device = "auto";
  int64_t sim_gpus = 2;
  bool sim_pacing = true;
  std::string sim_races = "error";
  std::string unusable_gpu = "degraded";
  bool nvtx = false;

  std::string socket = "/run/concert/concert.sock";
  std::string admin_socket = "/run/concert/admin.sock";
  int64_t metrics_port = 0;

  std::string policy = "auto";
  int64_t depth = defaults::kDepth;
  int64_t backlog_us = defaults::kBacklogUs;
  std::string split_sums = "repeatable";
  std::string program_engine = "auto";
  int64_t low_class_sm_percent = defaults::kLowClassSmPercent;
  int64_t spin_us = defaults::kSpinUs;
  bool pin_dispatchers = defaults::kPinDispatchers;

  int64_t wait_timeout_ms = defaults::kWaitTimeoutMs;
  int64_t collective_sms = 0;
  std::string transport = "auto";
  int64_t collective_timeout_ms = defaults::kCollectiveTimeoutMs;
  int64_t drain_s = 10;

  int64_t ring_capacity = defaults::kRingCapacity;
  int64_t max_sessions = defaults::kMaxSessions;
  int64_t max_sessions_per_uid = defaults::kMaxSessionsPerUid;
  int64_t max_buffer_bytes_per_uid = defaults::kMaxBufferBytesPerUid;
  int64_t max_buffers_per_uid = defaults::kMaxBuffersPerUid;

  std::string tune_store = "/var/lib/concert/tuning.sqlite3";
  bool tune_idle = defaults::kTuneIdle;
  int64_t tune_budget_s = defaults::kTuneBudgetS;

  std::string log_level = "info";

  bool operator==(const Config&) const = default;
};

struct Setting {
  using Member = std::variant<std::string Config::*, int64_t Config::*, bool Config::*>;

  std::string_view key;
  Member member;
  // Integers: the allowed range.
  int64_t min = 0, max = 0;
  // Strings: the allowed values; null: any that is not empty.
  std::vector<std::string> (*choices)() = nullptr;
  // How files and guides describe the allowed values, where what is allowed may grow elsewhere.
  std::string_view documented = {};
  std::string_view help = {};  // one sentence

  std::string EnvName() const;   // CONCERT_SPIN_US
  std::string FlagName() const;  // --spin-us
  std::string Allowed() const;   // "0 to 100000", "auto, cuda or sim", "true or false"
  std::string Documented() const;
};

std::span<const Setting> AllSettings();

inline constexpr std::string_view kDefaultConfigPath = "/etc/concert/concert.toml";

// A configuration and, for each row of AllSettings(), where its value came from: "default",
// "/etc/concert/concert.toml:12", "CONCERT_SPIN_US" or "--spin-us".
struct LoadedConfig {
  Config config;
  std::vector<std::string> origins;
  std::string file;  // what was read; empty if none

  LoadedConfig();
};

// All that is wrong, a line each: who has three errors in a file wants to know three.
class ConfigErrors {
 public:
  void Add(const absl::Status& status);  // an OK adds nothing
  // OK, or the first code with all messages, one per line.
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

// Each changes what it names, records the origin and goes on after an error. INVALID_ARGUMENT has a
// line for each error, in the file's order, with origin, key, value and what is allowed.
absl::Status ApplyToml(std::string_view text, const std::string& path, LoadedConfig& config);
absl::Status ApplyEnvironment(const std::function<const char*(const char*)>& getenv,
                              LoadedConfig& config);
absl::Status ApplyText(const Setting& setting, std::string_view value, const std::string& origin,
                       LoadedConfig& config);

// NOT_FOUND if the file does not exist.
absl::Status ApplyFile(const std::string& path, LoadedConfig& config);

// What single settings cannot say: INVALID_ARGUMENT if two of them name one socket, however they
// spell it.
absl::Status CheckTogether(const Config& config);

// The value that `setting` has unless it is set, as TOML.
std::string DefaultText(const Setting& setting);
// Valid TOML with each setting's meaning, range and origin as comments.
std::string RenderToml(const LoadedConfig& config);
// "depth = 3 (--depth)" for every setting that is not at its default.
std::vector<std::string> ChangedSettings(const LoadedConfig& config);
// The settings as a Markdown table, for docs/operations.md.
std::string RenderMarkdown();

struct CommandLine {
  LoadedConfig loaded;
  // Set for --help, --version, --check-config and --print-config: print it and exit with 0.
  std::optional<std::string> print;
};

// Reads everything: flags, environment, file. `argv[0]` is the program; --version prints `version`.
absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv,
                                             const std::string& version);

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_CONFIG_CONFIG_H_
