#include "tests/bench/gemm_suite.h"

#include <algorithm>
#include <ostream>
#include <vector>

#include "policies/cost/cost_model.h"
#include "policies/seam/work.h"
#include "tests/bench/gemm_entrants.h"
#include "tests/bench/gemm_turns.h"
#include "tests/bench/plan_log.h"
#include "tests/bench/result_file.h"
#include "tests/bench/scenario_file.h"
#include "tests/bench/scenario_loop.h"

namespace concert::bench {
namespace {

using nlohmann::json;

constexpr uint64_t kSeed = 20260101;
constexpr double kLossTolerance = 0.02;
constexpr double kOracleTolerance = 1.03;

double BoundUs(const GemmScenario& scenario, double memory_bytes_per_s) {
  const policies::DeviceModel model;
  double compute_s = 0, bytes = 0;
  for (const GemmShape& shape : scenario.gemms) {
    compute_s += shape.flops() / policies::PeakFlops(model, {.dtype = shape.dtype});
    bytes += shape.bytes();
  }
  return 1e6 * std::max(compute_s, bytes / memory_bytes_per_s);
}

// The fastest of `names` among what was measured, null if none was.
json Fastest(const json& times_us, const std::vector<std::string>& names) {
  json fastest;
  for (const std::string& name : names) {
    if (!times_us.contains(name)) continue;
    if (fastest.is_null() || times_us[name]["p50"] < fastest["p50"])
      fastest = {{"form", name}, {"p50", times_us[name]["p50"]}};
  }
  return fastest;
}

// The oracle: of the forms that concert may choose where all were measured, else of everybody.
void NameOracle(const Arena& arena, const Entrants& entrants, json& entry) {
  std::vector<std::string> names = arena.forms;
  if (names.empty()) {
    for (const Entrant& entrant : entrants.steady) names.push_back(entrant.name);
  } else {
    names.push_back("concert");
  }
  const json& times_us = entry["times_us"];
  entry["oracle"] = Fastest(times_us, names);
  if (arena.forms.empty()) return;
  entry["within_3_percent"] = times_us["concert"]["p50"].get<double>() <=
                              kOracleTolerance * entry["oracle"]["p50"].get<double>();
}

// When the last plan of what was measured before ended.
uint64_t LastPlanEndNs(const Arena& arena) {
  if (!arena.concert.daemon) return 0;
  const auto plans = LastPlans(arena.concert.daemon->admin_socket());
  return plans.ok() && !plans->empty() ? plans->front().finished_at_ns : 0;
}

absl::StatusOr<json> Measure(const Arena& arena, const GemmScenario& scenario, int rounds) {
  const uint64_t begin_ns = LastPlanEndNs(arena);
  GemmWorkload workload(scenario, kSeed);
  absl::StatusOr<Entrants> entrants = MakeEntrants(arena, workload);
  if (!entrants.ok()) return entrants.status();
  const bool is_sim = arena.concert.is_sim();
  double worst = 0;
  absl::Status measured = TakeTurns(entrants->steady, workload, is_sim, rounds, worst);
  if (!measured.ok()) return measured;

  json entry = {{"name", scenario.name},
                {"class", scenario.group},
                {"bound_us", BoundUs(scenario, arena.concert.memory_bytes_per_s())}};
  for (const Entrant& entrant : entrants->steady)
    entry["times_us"][entrant.name] = Spread(entrant.samples_us);
  if (arena.concert.daemon) {  // whose admin socket is known, and whose plans are all ours
    const auto plans = LastPlans(arena.concert.daemon->admin_socket(), begin_ns);
    if (plans.ok()) entry.update(DescribePlans(*plans, workload.gemms()));
  }
  measured = TakeTurnsAlone(entrants->alone, *entrants->concert, workload, is_sim, worst);
  if (!measured.ok()) return measured;
  for (const IsolatedEntrant& entrant : entrants->alone)
    entry["times_us"][entrant.name] = Spread(entrant.samples_us);
  entry["speedup_over"] = SpeedupOver(entry["times_us"], arena.rivals);
  entry["max_rel_error"] = worst;
  NameOracle(arena, *entrants, entry);
  return entry;
}

}  // namespace

absl::Status RunGemmSuite(const RunOptions& options, json& result) {
  const auto scenarios = ReadGemmScenarios(options.scenarios, options.filter);
  if (!scenarios.ok()) return scenarios.status();
  const absl::StatusOr<Arena> arena = OpenArena(options, result["header"]);
  if (!arena.ok()) return arena.status();

  return MeasureScenarios(
      options, *scenarios,
      [&](const GemmScenario& scenario) { return Measure(*arena, scenario, options.rounds); },
      [&](const json& entries) { return GemmSummary(entries, arena->rivals, kLossTolerance); },
      result);
}

}  // namespace concert::bench
