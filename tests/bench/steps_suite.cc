#include "tests/bench/steps_suite.h"

#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/bench/node_under_test.h"
#include "tests/bench/plan_log.h"
#include "tests/bench/result_file.h"
#include "tests/bench/step_job.h"
#include "tests/bench/step_scenario.h"
#include "tests/bench/tenant_turns.h"
#include "tests/bench/torch_job.h"

namespace concert::bench {
namespace {

using nlohmann::json;

// Longer than in suite "tenants": eight clients in slices have some nine steps of 12 ms in it.
constexpr std::chrono::milliseconds kStepsLap(100);

const TenantMode kTimeSliced{.name = "time_sliced", .policy = "", .form = kTorchForm};

// What PyTorch's modes need, or why they are left out.
absl::StatusOr<std::string> FindTorch(const TenantStage& stage) {
  if (!stage.options.torch) return absl::CancelledError("--baselines says so");
  if (stage.place.is_sim) return absl::UnavailableError("the simulator has no GPU for PyTorch");
  return TorchVersion(stage.options.python);
}

void AddTorch(TenantStage& stage, json& header) {
  const absl::StatusOr<std::string> version = FindTorch(stage);
  TenantMode mps = kTimeSliced, one_process = kTimeSliced;
  mps.name = "mps", mps.mps = true;
  one_process.name = "graphs_in_one_process", one_process.one_process = true;
  if (!version.ok()) {
    for (const TenantMode& mode : {kTimeSliced, mps, one_process})
      header["left_out"].push_back({{"name", mode.name}, {"why", version.status().message()}});
    return;
  }
  header["torch"] = *version;
  stage.turns[0].push_back(kTimeSliced);
  stage.turns[0].push_back(one_process);
  stage.alone[0].push_back(kTimeSliced);
  stage.rivals.baselines = {kTimeSliced.name, one_process.name};
  AddMps(mps, stage, header);
}

// Opens the node for as long as its description takes, and decides who takes part.
absl::StatusOr<TenantStage> SetStage(const RunOptions& options, json& header) {
  const absl::StatusOr<NodeUnderTest> node = OpenNodeUnderTest(options);
  if (!node.ok()) return node.status();
  TenantStage stage;
  stage.options = options;
  stage.place = PlaceOf(*node, "steps");
  stage.lap = kStepsLap;
  header = MakeHeader(*node, options);
  header.update(DescribeLaps(stage));
  header["baseline_path"] = "local";
  stage.turns = {{{.name = "concert", .policy = options.policy, .form = kProgramForm},
                  {.name = "ops", .policy = options.policy, .form = kOpsForm}}};
  stage.alone = stage.turns;
  stage.rivals.policies = {"ops"};
  AddTorch(stage, header);
  header["baselines"] = stage.rivals.baselines;
  header["policies"] = stage.rivals.policies;
  return stage;
}

double ToThousandths(double value) { return std::round(value * 1000) / 1000; }

// What programs cost before their first run and beside it: of each client, and of the daemon's
// memory all of them together.
json DescribePrograms(const TenantSeries& measured) {
  json described = json::object();
  for (const FirstRun& run : measured.first_runs) {
    described["registering_ms"].push_back(ToThousandths(run.registering_ms));
    described["first_run_ms"].push_back(ToThousandths(run.run_ms));
  }
  RegisteredProgram all;
  for (const RegisteredProgram& program : measured.programs) {
    all.arena_bytes += program.arena_bytes, all.slot_bytes += program.slot_bytes;
    all.workspace_bytes += program.workspace_bytes;
  }
  described["arena_bytes"] = all.arena_bytes, described["slot_bytes"] = all.slot_bytes;
  described["workspace_bytes"] = all.workspace_bytes;
  return described;
}

absl::StatusOr<json> MeasureSteps(const TenantStage& stage, const StepScenario& scenario) {
  const absl::StatusOr<SeriesByMode> series = MeasureModes(stage, GroupOf(scenario));
  if (!series.ok()) return series.status();
  json entry = DescribeTenants(GroupOf(scenario), *series, stage.rivals);
  const TenantSeries& concert = series->at("concert");
  const double bound_per_s = BoundStepsPerS(scenario, stage.place.memory_bytes_per_s);
  entry["bound_steps_per_s"] = ToThousandths(bound_per_s);
  entry["bound_us"] = ToThousandths(1e6 / bound_per_s);
  for (const auto& [mode, rates] : entry["client_throughput_per_s"].items()) {
    entry["share_of_bound"][mode] = ToThousandths(
        ShareOfBound(scenario, rates.get<std::vector<double>>(), stage.place.memory_bytes_per_s));
  }
  entry["max_rel_error"] = concert.worst_error();
  for (const auto& [mode, measured] : *series) {
    if (measured.failure.ok()) entry["client_rel_errors"][mode] = measured.errors;
  }
  entry["weights"] = WeightsOf(scenario);
  if (entry["weights"] != "own") {
    entry["weights_are"] =
        "once, sealed, in concert and ops; a copy for each client in the other modes";
  }
  entry["programs"] = DescribePrograms(concert);
  entry.update(DescribePlans(concert.plans, /*gemms=*/1));
  return entry;
}

}  // namespace

absl::Status RunStepsSuite(const RunOptions& options, json& result) {
  const auto scenarios = ReadStepScenarios(options.scenarios, options.filter);
  if (!scenarios.ok()) return scenarios.status();
  return MeasureTenantScenarios(options, *scenarios, SetStage, MeasureSteps, result);
}

}  // namespace concert::bench
