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
#include "tests/bench/plan_log.h"
#include "tests/bench/result_file.h"
#include "tests/bench/scenario_file.h"
#include "tests/bench/scenario_loop.h"
#include "tests/bench/speedup_summary.h"
#include "tests/bench/statistics.h"

namespace concert::bench {
namespace {

using nlohmann::json;

// Long against the slices of some 2 ms that processes get in turn.
constexpr std::chrono::microseconds kLap = std::chrono::milliseconds(250);
// Modes that exclude each other take turns of this many laps; two turns of everybody, or one for a
// quick look with fewer rounds than a lap. Most of a turn is starting its clients.
constexpr int kTurns = 2;
constexpr int kRoundsPerLap = 10;  // 40 rounds, the default, are four laps a turn: 2 s a mode
constexpr double kLossTolerance = 0.02;

// What a mode measured so far; vectors of vectors are [client].
struct Series {
  std::vector<double> us_per_gemm;
  std::vector<std::vector<double>> gemms_per_s, latencies_us, solo_latencies_us;
  std::vector<LoggedPlan> plans;
  absl::Status failure;  // of a baseline that cannot run the scenario
};
using SeriesByMode = std::map<std::string, Series>;

std::string HexUuid(const concert_gpu& gpu) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(gpu.uuid), sizeof(gpu.uuid)));
}

// Opens the node for as long as its description takes, and decides who takes part.
absl::StatusOr<TenantStage> SetStage(const RunOptions& options, json& header) {
  const absl::StatusOr<NodeUnderTest> node = OpenNodeUnderTest(options);
  if (!node.ok()) return node.status();
  header = MakeHeader(*node, options);
  TenantStage stage{.options = options,
                    .gpu = {.is_sim = node->is_sim(), .uuid = HexUuid(node->gpu)},
                    .turns = {},
                    .rivals = {}};
  const TenantMode concert{.name = "concert", .policy = options.policy};
  if (stage.gpu.is_sim) {
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

absl::Status AddLap(TenantCast& cast, Series& series) {
  TenantCrew& crew = cast.crew();
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

// Modes that run side by side, each with the place of what it measures.
class Turn {
 public:
  Turn(const TenantStage& stage, const TenantScenario& scenario, SeriesByMode& series)
      : stage_(stage), scenario_(scenario), series_(series) {}

  absl::Status Gather(const std::vector<TenantMode>& modes) {
    for (const TenantMode& mode : modes) {
      Series& series = series_[mode.name];
      if (!series.failure.ok()) continue;
      auto cast = TenantCast::Gather(stage_.options, stage_.gpu, scenario_, mode);
      absl::Status failed = DropOut(mode, cast.status(), series);
      if (!failed.ok()) return failed;
      if (cast.ok()) acts_.push_back({mode, *std::move(cast), &series});
    }
    return absl::OkStatus();
  }
  size_t size() const { return acts_.size(); }
  // Calls measure(cast, series) of the act, unless it has dropped out.
  template <class Measure>
  absl::Status Let(size_t i, const Measure& measure) {
    Act& act = acts_[i];
    if (act.cast == nullptr) return absl::OkStatus();
    const absl::Status measured = act.cast->Explain(measure(*act.cast, *act.series));
    if (!measured.ok()) act.cast = nullptr;  // its memory is for the others
    return DropOut(act.mode, measured, *act.series);
  }

 private:
  struct Act {
    TenantMode mode;
    std::unique_ptr<TenantCast> cast;  // null: dropped out
    Series* series;
  };

  // A baseline that fails is left out of the scenario, which says why. A daemon's failure is the
  // scenario's.
  static absl::Status DropOut(const TenantMode& mode, const absl::Status& why, Series& series) {
    if (why.ok() || mode.has_daemon() || absl::IsCancelled(why)) return why;
    series = Series{};
    series.failure = why;
    return absl::OkStatus();
  }

  const TenantStage& stage_;
  const TenantScenario& scenario_;
  SeriesByMode& series_;
  std::vector<Act> acts_;
};

absl::Status RunTurn(const TenantStage& stage, const TenantScenario& scenario,
                     const std::vector<TenantMode>& modes, bool with_solo, SeriesByMode& series,
                     double& worst) {
  Turn turn(stage, scenario, series);
  if (absl::Status gathered = turn.Gather(modes); !gathered.ok()) return gathered;
  for (size_t i = 0; with_solo && i < turn.size(); ++i) {
    absl::Status solo = turn.Let(i, [&](TenantCast& cast, Series& measured) {
      return MeasureSolo(scenario, cast.crew(), measured);
    });
    if (!solo.ok()) return solo;
  }
  const int laps = std::max(1, stage.options.rounds / kRoundsPerLap);
  for (int lap = 0; lap < laps; ++lap) {
    for (size_t i = 0; i < turn.size(); ++i) {
      if (absl::Status ran = turn.Let((lap + i) % turn.size(), AddLap); !ran.ok()) return ran;
    }
  }
  for (size_t i = 0; i < turn.size(); ++i) {
    absl::Status finished = turn.Let(i, [&](TenantCast& cast, Series& measured) {
      measured.plans = cast.Plans();
      const absl::StatusOr<double> error = cast.crew().Finish();
      if (error.ok()) worst = std::max(worst, *error);
      return error.status();
    });
    if (!finished.ok()) return finished;
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

json Describe(const TenantStage& stage, const TenantScenario& scenario, const SeriesByMode& series,
              double worst) {
  json entry = {
      {"name", scenario.name}, {"clients", scenario.clients.size()}, {"max_rel_error", worst}};
  const std::string alone_elsewhere = stage.rivals.baselines.front();
  for (const auto& [mode, measured] : series) {
    if (!measured.failure.ok()) {
      entry["unavailable"].push_back({{"name", mode}, {"why", measured.failure.message()}});
      continue;
    }
    entry["times_us"][mode] = Spread(measured.us_per_gemm);
    entry["throughput_per_s"][mode] = 1e6 / Quantile(measured.us_per_gemm, 0.5);
    entry["client_throughput_per_s"][mode] = Medians(measured.gemms_per_s);
    entry["latency_us"][mode] = Latencies(measured.latencies_us);
    if (!measured.solo_latencies_us.empty())
      entry["solo_latency_us"][mode] = Latencies(measured.solo_latencies_us);
    // Under MPS, too, a client alone is a client that computes itself.
    const Series& alone =
        measured.solo_latencies_us.empty() ? series.at(alone_elsewhere) : measured;
    if (scenario.has_priorities() && !alone.solo_latencies_us.empty())
      entry["high_p99_over_solo"][mode] = HighP99OverSolo(scenario, measured, alone);
  }
  entry.update(DescribePlans(series.at("concert").plans, /*gemms=*/1));
  const std::vector<double> concert = Medians(series.at("concert").gemms_per_s);
  for (const std::string& rival : stage.rivals.baselines) {
    if (!series.at(rival).failure.ok()) continue;
    std::vector<double> ratios = Medians(series.at(rival).gemms_per_s);
    for (size_t i = 0; i < ratios.size(); ++i) ratios[i] = concert[i] / ratios[i];
    entry["client_speedup_over"][rival] = GeometricMean(ratios);
  }
  entry["speedup_over"] = SpeedupOver(entry["times_us"], stage.rivals);
  return entry;
}

}  // namespace

absl::StatusOr<json> MeasureTenants(const TenantStage& stage, const TenantScenario& scenario) {
  SeriesByMode series;
  double worst = 0;
  const int turns = stage.options.rounds < kRoundsPerLap ? 1 : kTurns;
  for (int turn = 0; turn < turns; ++turn) {
    for (size_t i = 0; i < stage.turns.size(); ++i) {
      const bool with_solo = turn == 0 && i == 0;
      absl::Status ran = RunTurn(stage, scenario, stage.turns[i], with_solo, series, worst);
      if (!ran.ok()) return ran;
    }
  }
  return Describe(stage, scenario, series, worst);
}

absl::Status RunTenantsSuite(const RunOptions& options, json& result) {
  const auto scenarios = ReadTenantScenarios(options.scenarios, options.filter);
  if (!scenarios.ok()) return scenarios.status();
  // Before anything is started, which would inherit it.
  absl::Status left = options.device == "sim" ? absl::OkStatus() : LeaveMps();
  if (!left.ok()) return left;
  const absl::StatusOr<TenantStage> stage = SetStage(options, result["header"]);
  if (!stage.ok()) return stage.status();

  return MeasureScenarios(
      *scenarios, [&](const TenantScenario& scenario) { return MeasureTenants(*stage, scenario); },
      [&](const json& entries) { return SpeedupSummary(entries, stage->rivals, kLossTolerance); },
      result);
}

}  // namespace concert::bench
