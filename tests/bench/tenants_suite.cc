#include "tests/bench/tenants_suite.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tests/bench/mps_daemon.h"
#include "tests/bench/node_under_test.h"
#include "tests/bench/progress.h"
#include "tests/bench/result_file.h"
#include "tests/bench/scenario_file.h"
#include "tests/bench/scenario_loop.h"
#include "tests/bench/speedup_summary.h"
#include "tests/bench/statistics.h"
#include "tests/bench/tenant_crew.h"

namespace concert::bench {
namespace {

using nlohmann::json;

// Long against the slices of some 2 ms that processes get in turn.
constexpr std::chrono::microseconds kLap = std::chrono::milliseconds(250);
// Modes that exclude each other take turns of this many laps; two turns of everybody.
constexpr int kTurns = 2;
constexpr int kRoundsPerLap = 10;  // 40 rounds, the default, are four laps a turn: 2 s a mode
constexpr double kLossTolerance = 0.02;

struct Mode {
  std::string name;
  std::string policy;  // of a private daemon; empty: clients compute themselves
  bool mps = false;
};

// What a mode measured so far; vectors of vectors are [client].
struct Series {
  std::vector<double> us_per_gemm;
  std::vector<std::vector<double>> gemms_per_s, latencies_us, solo_latencies_us;
};

struct Stage {
  RunOptions options;
  bool is_sim = false;
  std::string gpu_uuid;  // 32 hexadecimal digits
  // Those of one turn run side by side, lap by lap.
  std::vector<std::vector<Mode>> turns;
  Rivals rivals;
};

std::string HexUuid(const concert_gpu& gpu) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(gpu.uuid), sizeof(gpu.uuid)));
}

// Opens the node for as long as its description takes, and decides who takes part.
absl::StatusOr<Stage> SetStage(const RunOptions& options, json& header) {
  const absl::StatusOr<NodeUnderTest> node = OpenNodeUnderTest(options);
  if (!node.ok()) return node.status();
  header = MakeHeader(*node, options);
  Stage stage{.options = options,
              .is_sim = node->is_sim(),
              .gpu_uuid = HexUuid(node->gpu),
              .turns = {},
              .rivals = {}};
  const Mode concert{.name = "concert", .policy = options.policy};
  if (stage.is_sim) {
    header["baseline_path"] = "policy";
    stage.turns = {{concert, {.name = "serial", .policy = "serial"}}};
    stage.rivals.baselines = {"serial"};
  } else {
    header["baseline_path"] = "local";
    stage.turns = {{concert, {.name = "time_sliced", .policy = ""}}};
    stage.rivals.baselines = {"time_sliced"};
    absl::Status mps = MpsDaemon::Start().status();
    if (mps.ok() && !options.socket.empty())
      mps = absl::FailedPreconditionError("the daemon at --socket keeps running");
    if (mps.ok()) {
      stage.turns.push_back({{.name = "mps", .policy = "", .mps = true}});
      stage.rivals.baselines.push_back("mps");
    } else {
      header["left_out"].push_back({{"name", "mps"}, {"why", mps.message()}});
    }
  }
  header["baselines"] = stage.rivals.baselines;
  return stage;
}

// A mode's processes: its daemon, if it has one, and the clients.
struct Cast {
  std::unique_ptr<MpsDaemon> mps;
  NodeUnderTest node;
  std::unique_ptr<TenantCrew> crew;  // declared last: ends first
};

// What a user would set for clients under MPS, whose servers know two priorities: 0 and, below
// it, 1.
std::vector<std::vector<std::string>> MpsEnvironments(const TenantScenario& scenario,
                                                      const MpsDaemon& mps) {
  std::vector<std::vector<std::string>> environments;
  int highest = -1;
  for (const auto& client : scenario.clients) highest = std::max(highest, client.priority);
  for (const auto& client : scenario.clients) {
    environments.push_back(mps.environment());
    environments.back().push_back(
        absl::StrCat("CUDA_MPS_CLIENT_PRIORITY=", client.priority < highest ? 1 : 0));
  }
  return environments;
}

absl::StatusOr<Cast> Gather(const Stage& stage, const TenantScenario& scenario, const Mode& mode) {
  Cast cast;
  TenantCrew::Options crew{.scenarios = stage.options.scenarios,
                           .socket = "",
                           .gpu_uuid = stage.gpu_uuid,
                           .environments = {}};
  if (!mode.policy.empty()) {
    RunOptions options = stage.options;
    options.policy = mode.policy;
    if (mode.name != "concert") options.socket.clear();  // it has a policy of its own already
    options.device = stage.is_sim ? "sim" : "cuda";
    absl::StatusOr<NodeUnderTest> node = OpenNodeUnderTest(options);
    if (!node.ok()) return node.status();
    cast.node = *std::move(node);
    crew.socket = cast.node.socket;
  }
  if (mode.mps) {
    absl::StatusOr<std::unique_ptr<MpsDaemon>> mps = MpsDaemon::Start();
    if (!mps.ok()) return mps.status();
    cast.mps = *std::move(mps);
    crew.environments = MpsEnvironments(scenario, *cast.mps);
  }
  absl::StatusOr<std::unique_ptr<TenantCrew>> started = TenantCrew::Start(scenario, crew);
  if (!started.ok()) return started.status();
  cast.crew = *std::move(started);
  return cast;
}

bool SameClient(const TenantScenario::Client& a, const TenantScenario::Client& b) {
  const auto same_shape = [](const GemmShape& x, const GemmShape& y) {
    return x.m == y.m && x.n == y.n && x.k == y.k && x.dtype == y.dtype;
  };
  return a.priority == b.priority &&
         std::equal(a.chain.gemms.begin(), a.chain.gemms.end(), b.chain.gemms.begin(),
                    b.chain.gemms.end(), same_shape);
}

// Each kind of client alone, while the others sleep.
absl::Status MeasureSolo(const TenantScenario& scenario, TenantCrew& crew, Series& series) {
  const auto& clients = scenario.clients;
  for (size_t i = 0; i < clients.size(); ++i) {
    const auto same = std::find_if(clients.begin(), clients.end(), [&](const auto& other) {
      return SameClient(other, clients[i]);
    });
    const auto first = static_cast<size_t>(same - clients.begin());
    if (first < i) {
      series.solo_latencies_us.push_back(series.solo_latencies_us[first]);
      continue;
    }
    absl::StatusOr<TenantCrew::Lap> lap = crew.RunLap(uint64_t{1} << i, kLap);
    if (!lap.ok()) return lap.status();
    series.solo_latencies_us.push_back(std::move(lap->latencies_us[i]));
  }
  return absl::OkStatus();
}

absl::Status AddLap(TenantCrew& crew, Series& series) {
  const absl::StatusOr<TenantCrew::Lap> lap = crew.RunLap(crew.everybody(), kLap);
  if (!lap.ok()) return lap.status();
  series.us_per_gemm.push_back(lap->us_per_gemm);
  series.gemms_per_s.resize(lap->gemms_per_s.size());
  series.latencies_us.resize(lap->latencies_us.size());
  for (size_t i = 0; i < lap->gemms_per_s.size(); ++i) {
    series.gemms_per_s[i].push_back(lap->gemms_per_s[i]);
    series.latencies_us[i].insert(series.latencies_us[i].end(), lap->latencies_us[i].begin(),
                                  lap->latencies_us[i].end());
  }
  return absl::OkStatus();
}

// One turn of modes that may run side by side.
absl::Status RunTurn(const Stage& stage, const TenantScenario& scenario,
                     const std::vector<Mode>& modes, bool with_solo,
                     std::map<std::string, Series>& series, double& worst) {
  std::vector<Cast> casts;
  for (const Mode& mode : modes) {
    absl::StatusOr<Cast> cast = Gather(stage, scenario, mode);
    if (!cast.ok()) return cast.status();
    casts.push_back(*std::move(cast));
  }
  for (Cast& cast : casts) {
    if (absl::Status ready = cast.crew->AwaitReady(); !ready.ok()) return ready;
    if (!cast.mps) continue;
    if (absl::Status served = cast.mps->HasServer(); !served.ok()) return served;
  }
  for (size_t i = 0; with_solo && i < modes.size(); ++i) {
    absl::Status solo = MeasureSolo(scenario, *casts[i].crew, series[modes[i].name]);
    if (!solo.ok()) return solo;
  }
  const int laps = std::max(1, stage.options.rounds / kRoundsPerLap);
  for (int lap = 0; lap < laps; ++lap) {
    for (size_t turn = 0; turn < modes.size(); ++turn) {
      const size_t who = (lap + turn) % modes.size();
      absl::Status added = AddLap(*casts[who].crew, series[modes[who].name]);
      if (!added.ok()) return added;
    }
  }
  for (Cast& cast : casts) {
    const absl::StatusOr<double> error = cast.crew->Finish();
    if (!error.ok()) return error.status();
    worst = std::max(worst, *error);
  }
  return absl::OkStatus();
}

json Latencies(const std::vector<std::vector<double>>& clients) {
  json latencies = json::array();
  for (const std::vector<double>& samples_us : clients)
    latencies.push_back({{"p50", Quantile(samples_us, 0.5)}, {"p99", Quantile(samples_us, 0.99)}});
  return latencies;
}

std::vector<double> Medians(const std::vector<std::vector<double>>& clients) {
  std::vector<double> medians;
  for (const std::vector<double>& samples : clients) medians.push_back(Quantile(samples, 0.5));
  return medians;
}

// The p99 of the clients of the highest priority over their p99 alone: the worst of them.
double HighP99OverSolo(const TenantScenario& scenario, const Series& crowd, const Series& alone) {
  int highest = -1;
  for (const auto& client : scenario.clients) highest = std::max(highest, client.priority);
  double worst = 0;
  for (size_t i = 0; i < scenario.clients.size(); ++i) {
    if (scenario.clients[i].priority < highest) continue;
    worst = std::max(
        worst, Quantile(crowd.latencies_us[i], 0.99) / Quantile(alone.solo_latencies_us[i], 0.99));
  }
  return worst;
}

json Describe(const Stage& stage, const TenantScenario& scenario,
              const std::map<std::string, Series>& series, double worst) {
  json entry = {
      {"name", scenario.name}, {"clients", scenario.clients.size()}, {"max_rel_error", worst}};
  const std::string alone_elsewhere = stage.rivals.baselines.front();
  for (const auto& [mode, measured] : series) {
    entry["times_us"][mode] = Spread(measured.us_per_gemm);
    entry["throughput_per_s"][mode] = 1e6 / Quantile(measured.us_per_gemm, 0.5);
    entry["client_throughput_per_s"][mode] = Medians(measured.gemms_per_s);
    entry["latency_us"][mode] = Latencies(measured.latencies_us);
    if (!measured.solo_latencies_us.empty())
      entry["solo_latency_us"][mode] = Latencies(measured.solo_latencies_us);
    if (!scenario.has_priorities()) continue;
    // Under MPS, too, a client alone is a client that computes itself.
    const Series& alone =
        measured.solo_latencies_us.empty() ? series.at(alone_elsewhere) : measured;
    entry["high_p99_over_solo"][mode] = HighP99OverSolo(scenario, measured, alone);
  }
  const std::vector<double> concert = Medians(series.at("concert").gemms_per_s);
  for (const std::string& rival : stage.rivals.baselines) {
    std::vector<double> ratios = Medians(series.at(rival).gemms_per_s);
    for (size_t i = 0; i < ratios.size(); ++i) ratios[i] = concert[i] / ratios[i];
    entry["client_speedup_over"][rival] = GeometricMean(ratios);
  }
  entry["speedup_over"] = SpeedupOver(entry["times_us"], stage.rivals);
  return entry;
}

absl::StatusOr<json> Measure(const Stage& stage, const TenantScenario& scenario) {
  std::map<std::string, Series> series;
  double worst = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (size_t i = 0; i < stage.turns.size(); ++i) {
      const bool with_solo = turn == 0 && i == 0;
      absl::Status ran = RunTurn(stage, scenario, stage.turns[i], with_solo, series, worst);
      if (!ran.ok()) return ran;
    }
  }
  return Describe(stage, scenario, series, worst);
}

}  // namespace

absl::Status RunTenantsSuite(const RunOptions& options, json& result) {
  const auto scenarios = ReadTenantScenarios(options.scenarios, options.filter);
  if (!scenarios.ok()) return scenarios.status();
  const absl::StatusOr<Stage> stage = SetStage(options, result["header"]);
  if (!stage.ok()) return stage.status();

  return MeasureScenarios(
      *scenarios, [&](const TenantScenario& scenario) { return Measure(*stage, scenario); },
      [&](const json& entries) { return SpeedupSummary(entries, stage->rivals, kLossTolerance); },
      result);
}

}  // namespace concert::bench
