#include "tests/bench/tenants_suite.h"

#include <algorithm>
#include <chrono>
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
#include "tests/bench/tenant_series.h"

namespace concert::bench {
namespace {

using nlohmann::json;

// Twenty laps of 50 ms say more than four of 250: their scatter shows. A lap is long against the
// chains (0.1 to 7 ms) and the slices of some 2 ms that processes get in turn, and chains that its
// ends cut count by their share.
constexpr std::chrono::microseconds kLap = std::chrono::milliseconds(50);
constexpr int kSoloLaps = 5;  // of a client while its neighbours sleep
// Modes that exclude each other take turns. Starting their clients takes most of a turn, so that a
// turn has many laps and only who asks for more than the default gets more turns.
constexpr int kLapsPerTurn = 40;
constexpr double kLossTolerance = 0.02;

std::string HexUuid(const concert_gpu& gpu) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(gpu.uuid), sizeof(gpu.uuid)));
}

// Opens the node for as long as its description takes, and decides who takes part.
absl::StatusOr<TenantStage> SetStage(const RunOptions& options, json& header) {
  const absl::StatusOr<NodeUnderTest> node = OpenNodeUnderTest(options);
  if (!node.ok()) return node.status();
  header = MakeHeader(*node, options);
  header.update({{"laps", options.rounds}, {"lap_ms", kLap / std::chrono::milliseconds(1)}});
  TenantStage stage{.options = options,
                    .gpu = {.is_sim = node->is_sim(), .uuid = HexUuid(node->gpu)},
                    .turns = {},
                    .alone = {},
                    .rivals = {}};
  const TenantMode concert{.name = "concert", .policy = options.policy};
  if (stage.gpu.is_sim) {
    header["baseline_path"] = "policy";
    stage.turns = {{concert, {.name = "serial", .policy = "serial"}}};
    stage.alone = stage.turns;
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
  if (!stage.gpu.is_sim) {
    stage.alone = {{concert, {.name = "local_graph", .policy = ""}}};
    stage.rivals.baselines.push_back("local_graph");
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
absl::Status MeasureSolo(const TenantScenario& scenario, TenantCrew& crew, TenantSeries& series) {
  const auto& clients = scenario.clients;
  for (size_t i = 0; i < clients.size(); ++i) {
    const auto same = std::find_if(clients.begin(), clients.end(), [&](const auto& other) {
      return SameClient(other, clients[i]);
    });
    const auto first = static_cast<size_t>(same - clients.begin());
    if (first < i) {
      series.solo_latencies.push_back(series.solo_latencies[first]);
      continue;
    }
    ClientLatencies& latencies = series.solo_latencies.emplace_back();
    for (int n = 0; n < kSoloLaps; ++n) {
      const absl::StatusOr<TenantCrew::Lap> lap = crew.RunLap(uint64_t{1} << i, kLap);
      if (!lap.ok()) return lap.status();
      latencies.AddLap(lap->latencies_us[i]);
    }
  }
  return absl::OkStatus();
}

absl::Status AddLap(TenantCast& cast, TenantSeries& series) {
  TenantCrew& crew = cast.crew();
  const absl::StatusOr<TenantCrew::Lap> lap = crew.RunLap(crew.everybody(), kLap);
  if (!lap.ok()) return lap.status();
  series.AddLap(*lap);
  return absl::OkStatus();
}

// Modes that run side by side, each with the place of what it measures.
class Turn {
 public:
  Turn(const TenantStage& stage, const TenantScenario& scenario, SeriesByMode& series)
      : stage_(stage), scenario_(scenario), series_(series) {}

  // All modes' clients get ready side by side, since that takes longer than their laps.
  absl::Status Gather(const std::vector<TenantMode>& modes) {
    for (const TenantMode& mode : modes) {
      TenantSeries& series = series_[mode.name];
      if (!series.failure.ok()) continue;
      auto cast = TenantCast::Start(stage_.options, stage_.gpu, scenario_, mode);
      absl::Status failed = DropOut(mode, cast.status(), series);
      if (!failed.ok()) return failed;
      if (cast.ok()) acts_.push_back({mode, *std::move(cast), &series});
    }
    for (size_t i = 0; i < acts_.size(); ++i) {
      const auto await = [](TenantCast& cast, TenantSeries&) { return cast.AwaitReady(); };
      if (absl::Status ready = Let(i, await); !ready.ok()) return ready;
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
    TenantSeries* series;
  };

  // A baseline that fails is left out of the scenario, which says why. A daemon's failure is the
  // scenario's.
  static absl::Status DropOut(const TenantMode& mode, const absl::Status& why,
                              TenantSeries& series) {
    if (why.ok() || mode.has_daemon() || absl::IsCancelled(why)) return why;
    series = TenantSeries{};
    series.failure = why;
    return absl::OkStatus();
  }

  const TenantStage& stage_;
  const TenantScenario& scenario_;
  SeriesByMode& series_;
  std::vector<Act> acts_;
};

absl::Status RunTurn(const TenantStage& stage, const TenantScenario& scenario,
                     const std::vector<TenantMode>& modes, int laps, bool with_solo,
                     SeriesByMode& series, double& worst) {
  Turn turn(stage, scenario, series);
  if (absl::Status gathered = turn.Gather(modes); !gathered.ok()) return gathered;
  for (size_t i = 0; with_solo && i < turn.size(); ++i) {
    absl::Status solo = turn.Let(i, [&](TenantCast& cast, TenantSeries& measured) {
      return MeasureSolo(scenario, cast.crew(), measured);
    });
    if (!solo.ok()) return solo;
  }
  for (int lap = 0; lap < laps; ++lap) {
    for (size_t i = 0; i < turn.size(); ++i) {
      if (absl::Status ran = turn.Let((lap + i) % turn.size(), AddLap); !ran.ok()) return ran;
    }
  }
  for (size_t i = 0; i < turn.size(); ++i) {
    absl::Status finished = turn.Let(i, [&](TenantCast& cast, TenantSeries& measured) {
      measured.plans = cast.Plans();
      const absl::StatusOr<double> error = cast.crew().Finish();
      if (error.ok()) worst = std::max(worst, *error);
      return error.status();
    });
    if (!finished.ok()) return finished;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<json> MeasureTenants(const TenantStage& stage, const TenantScenario& scenario) {
  SeriesByMode series;
  double worst = 0;
  const bool alone = scenario.clients.size() == 1;
  const auto& turns = alone ? stage.alone : stage.turns;
  for (int left = stage.options.rounds; left > 0; left -= kLapsPerTurn) {
    for (size_t i = 0; i < turns.size(); ++i) {
      const bool with_solo = !alone && left == stage.options.rounds && i == 0;
      absl::Status ran = RunTurn(stage, scenario, turns[i], std::min(left, kLapsPerTurn), with_solo,
                                 series, worst);
      if (!ran.ok()) return ran;
    }
  }
  json entry = DescribeTenants(scenario, series, stage.rivals.baselines);
  entry["max_rel_error"] = worst;
  entry.update(DescribePlans(series.at("concert").plans, /*gemms=*/1));
  return entry;
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
      options, *scenarios,
      [&](const TenantScenario& scenario) { return MeasureTenants(*stage, scenario); },
      [&](const json& entries) { return TenantsSummary(entries, stage->rivals, kLossTolerance); },
      result);
}

}  // namespace concert::bench
