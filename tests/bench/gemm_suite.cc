#include "tests/bench/gemm_suite.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <ostream>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "policies/cost_model.h"
#include "policies/work.h"
#include "tests/bench/gemm_entrants.h"
#include "tests/bench/plan_log.h"
#include "tests/bench/progress.h"
#include "tests/bench/result_file.h"
#include "tests/bench/scenario_file.h"
#include "tests/bench/scenario_loop.h"

namespace concert::bench {
namespace {

using nlohmann::json;

constexpr uint64_t kSeed = 20260101;
constexpr double kTurnUs = 2000;  // long against one batch, short against changes of the clocks
// At the turn's end the pipeline drains.
constexpr int kMinBatches = 20;
constexpr int kMaxBatches = 256;
constexpr int kWarmUpRuns = 3;
constexpr int kSimBatches = 8;  // the simulator computes on the CPU
constexpr double kLossTolerance = 0.02;
constexpr double kOracleTolerance = 1.03;

// Batches one at a time, the daemon and the plain launches in turn. The first of a block wake up
// what slept during the other's block and are not counted.
struct IsolatedBlocks {
  int blocks, unmeasured, measured;
};
constexpr IsolatedBlocks kGpuBlocks = {8, 5, 25};
constexpr IsolatedBlocks kSimBlocks = {1, 1, 4};

// DATA_LOSS when results are wrong.
absl::Status Check(const std::string& name, Contender& contender, const GemmWorkload& workload,
                   double& worst) {
  absl::StatusOr<double> error = contender.WorstError();
  if (!error.ok()) return error.status();
  double tolerance = 0;
  for (const GemmShape& shape : workload.scenario().gemms) {
    tolerance = std::max(tolerance, GemmWorkload::Tolerance(shape.dtype));
  }
  if (!(*error <= tolerance)) {
    return absl::DataLossError(absl::StrCat(name, " computes wrong results: relative error ",
                                            *error, ", at most ", tolerance, " allowed"));
  }
  worst = std::max(worst, *error);
  return absl::OkStatus();
}

// Checks one contender over all operand sets and says how many batches fill its turn. The first
// batches find kernels not loaded and nothing decided; a turn sized by them is too short.
absl::StatusOr<int> WarmUp(Entrant& entrant, const GemmWorkload& workload, bool is_sim,
                           double& worst) {
  if (absl::Status poisoned = entrant.contender->PoisonOutputs(); !poisoned.ok()) return poisoned;
  absl::StatusOr<double> batch_us = entrant.contender->Run(workload.sets());
  if (!batch_us.ok()) return batch_us.status();
  absl::Status checked = Check(entrant.name, *entrant.contender, workload, worst);
  if (!checked.ok()) return checked;
  if (is_sim) return kSimBatches;
  int batches = kMinBatches;
  for (int run = 0; run < kWarmUpRuns; ++run) {
    batch_us = entrant.contender->Run(batches);
    if (!batch_us.ok()) return batch_us.status();
    batches = static_cast<int>(std::clamp<double>(kTurnUs / *batch_us, kMinBatches, kMaxBatches));
  }
  return batches;
}

double BoundUs(const GemmScenario& scenario) {
  const policies::DeviceModel model;
  double compute_s = 0, bytes = 0;
  for (const GemmShape& shape : scenario.gemms) {
    compute_s += shape.flops() / policies::PeakFlops(model, {.dtype = shape.dtype});
    bytes += shape.bytes();
  }
  return 1e6 * std::max(compute_s, bytes / model.hbm_bytes_per_s);
}

absl::Status TakeTurns(Entrants& entrants, const GemmWorkload& workload, bool is_sim, int rounds,
                       double& worst) {
  std::vector<int> batches;
  for (Entrant& entrant : entrants.steady) {
    absl::StatusOr<int> count = WarmUp(entrant, workload, is_sim, worst);
    if (!count.ok()) return count.status();
    batches.push_back(*count);
  }
  // In a new order each round: who always follows the same one finds the GPU as hot, and the CPU as
  // asleep, as that one leaves it.
  std::vector<size_t> order(entrants.steady.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 random(kSeed);
  for (int round = 0; round < rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t who : order) {
      if (Interrupted()) return absl::CancelledError("interrupted");
      Entrant& entrant = entrants.steady[who];
      const absl::StatusOr<double> batch_us = entrant.contender->Run(batches[who]);
      if (!batch_us.ok()) return batch_us.status();
      entrant.samples_us.push_back(*batch_us);
    }
  }
  for (Entrant& entrant : entrants.steady) {
    absl::Status checked = Check(entrant.name, *entrant.contender, workload, worst);
    if (!checked.ok()) return checked;
  }
  return absl::OkStatus();
}

// Adds "isolated" and, where there is a GPU, "isolated_local" to `times_us`.
absl::Status MeasureIsolated(Entrants& entrants, const GemmWorkload& workload, bool is_sim,
                             double& worst, json& times_us) {
  const IsolatedBlocks& plan = is_sim ? kSimBlocks : kGpuBlocks;
  if (absl::Status poisoned = entrants.concert->PoisonOutputs(); !poisoned.ok()) return poisoned;
  for (int set = 0; entrants.isolated && set < workload.sets(); ++set) {
    if (const auto ran = entrants.isolated->RunOnce(set); !ran.ok()) return ran.status();
  }
  if (entrants.isolated) {
    absl::Status checked = Check("isolated_local", *entrants.concert, workload, worst);
    if (!checked.ok()) return checked;
  }
  std::vector<double> concert_us, local_us;
  const auto run_block = [&](std::vector<double>& samples_us, const auto& run) -> absl::Status {
    for (int i = 0; i < plan.unmeasured + plan.measured; ++i) {
      if (Interrupted()) return absl::CancelledError("interrupted");
      const absl::StatusOr<double> batch_us = run(i);
      if (!batch_us.ok()) return batch_us.status();
      if (i >= plan.unmeasured) samples_us.push_back(*batch_us);
    }
    return absl::OkStatus();
  };
  for (int block = 0; block < plan.blocks; ++block) {
    absl::Status ran =
        run_block(concert_us, [&](int batch) { return entrants.concert->RunIsolated(batch); });
    if (!ran.ok()) return ran;
    if (!entrants.isolated) continue;
    ran = run_block(local_us,
                    [&](int batch) { return entrants.isolated->RunOnce(batch % workload.sets()); });
    if (!ran.ok()) return ran;
  }
  times_us["isolated"] = Spread(concert_us);
  if (!local_us.empty()) times_us["isolated_local"] = Spread(local_us);
  return absl::OkStatus();
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
  absl::Status measured = TakeTurns(*entrants, workload, is_sim, rounds, worst);
  if (!measured.ok()) return measured;

  json entry = {
      {"name", scenario.name}, {"class", scenario.group}, {"bound_us", BoundUs(scenario)}};
  for (const Entrant& entrant : entrants->steady)
    entry["times_us"][entrant.name] = Spread(entrant.samples_us);
  if (arena.concert.daemon) {  // whose admin socket is known, and whose plans are all ours
    const auto plans = LastPlans(arena.concert.daemon->admin_socket(), begin_ns);
    if (plans.ok()) entry.update(DescribePlans(*plans, workload.gemms()));
  }
  measured = MeasureIsolated(*entrants, workload, is_sim, worst, entry["times_us"]);
  if (!measured.ok()) return measured;
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
      *scenarios,
      [&](const GemmScenario& scenario) { return Measure(*arena, scenario, options.rounds); },
      [&](const json& entries) { return GemmSummary(entries, arena->rivals, kLossTolerance); },
      result);
}

}  // namespace concert::bench
