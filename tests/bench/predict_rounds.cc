// Predicts the suite `gemm` without a GPU: how the batches in flight go round, which of them share
// a launch and when the GPU runs dry. For trying rules of the scheduler and policies, before a GPU
// is asked.
//
// The dispatcher is the real one, with its scheduler and policy, in a time of its own: what it and
// the client take are constants, and the GPU is the simulator's. `--measured` holds times against a
// result of `concert-bench run --suite gemm`. Deterministic.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/dispatcher_bed.h"
#include "tests/bench/model_rounds.h"
#include "tests/bench/result_file.h"
#include "tests/bench/scenario_file.h"
#include "tests/bench/statistics.h"

namespace concert::bench {
namespace {

struct Options {
  std::string scenarios = "tests/bench/scenarios/gemm.json";
  std::string filter, measured;
  RoundsOptions rounds;
};

// Microseconds per batch that a result file has for concert, by scenario.
std::map<std::string, double> ReadMeasured(const std::string& path) {
  std::map<std::string, double> measured;
  std::ifstream file(path);
  const nlohmann::json result = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!ValidateResult(result).ok()) return measured;
  for (const nlohmann::json& scenario : result["scenarios"]) {
    const nlohmann::json::json_pointer median("/times_us/concert/p50");
    if (scenario.contains(median)) measured[scenario["name"]] = scenario[median];
  }
  return measured;
}

void PrintRow(const std::string& name, const Prediction& prediction, double measured_us) {
  std::printf("%-36s %8.2f", name.c_str(), prediction.batch_us);
  if (measured_us > 0) {
    std::printf(" %8.2f %5.2f", measured_us, prediction.batch_us / measured_us);
  }
  std::printf(" %5.0f%% %5.0f%% ", 100 * prediction.idle_us / prediction.batch_us,
              100 * prediction.dispatcher_us / prediction.batch_us);
  for (const auto& [ops, per_batch] : prediction.launches) {
    if (per_batch >= 0.02) std::printf(" %.2fx%d", per_batch, ops);
  }
  if (prediction.library_share > 0) {
    std::printf("  (%.0f%% by the library)", 100 * prediction.library_share);
  }
  std::printf("\n");
}

int Run(const Options& options) {
  const auto scenarios = ReadGemmScenarios(options.scenarios, options.filter);
  if (!scenarios.ok()) {
    std::cerr << scenarios.status().message() << "\n";
    return 1;
  }
  const std::map<std::string, double> measured = ReadMeasured(options.measured);
  if (!options.measured.empty() && measured.empty()) {
    std::cerr << options.measured << " is not a result of the suite `gemm`\n";
    return 1;
  }
  std::printf("%-36s %8s%s %6s %6s  launches per batch x ops\n", "us per batch", "predicted",
              measured.empty() ? "" : " measured ratio", "idle", "busy");
  std::vector<double> batches_us, errors;
  for (const GemmScenario& scenario : *scenarios) {
    if (!scenario.unsupported.empty()) continue;
    if (!DispatcherBed::Fits(scenario.gemms)) {
      std::printf("%-36s left out: more than %d GEMMs, or one of more than 1 GiB\n",
                  scenario.name.c_str(), static_cast<int>(DispatcherBed::kMaxGemms));
      continue;
    }
    const absl::StatusOr<Prediction> prediction = Rounds(scenario.gemms, options.rounds).Run();
    if (!prediction.ok()) {
      std::cerr << scenario.name << ": " << prediction.status().message() << "\n";
      return 1;
    }
    const auto found = measured.find(scenario.name);
    PrintRow(scenario.name, *prediction, found == measured.end() ? 0 : found->second);
    batches_us.push_back(prediction->batch_us);
    if (found != measured.end())
      errors.push_back(std::abs(prediction->batch_us / found->second - 1));
  }
  std::printf("geomean %.2f us", GeometricMean(batches_us));
  if (!errors.empty()) std::printf("; off by %.0f %% (median)", 100 * Quantile(errors, 0.5));
  std::printf("\n");
  return 0;
}

int Main(int argc, char** argv) {
  CLI::App app{"Predicts how the batches of the suite gemm go round, without a GPU"};
  Options options;
  RoundsOptions& rounds = options.rounds;
  HostCosts& costs = rounds.costs;
  app.add_option("--scenarios", options.scenarios, "Suite file")->check(CLI::ExistingFile);
  app.add_option("--filter", options.filter, "Only scenarios that match (POSIX extended)");
  app.add_option("--measured", options.measured, "A result of the suite to compare with")
      ->check(CLI::ExistingFile);
  app.add_option("--policy", rounds.policy, "As concertd's");
  app.add_option("--depth", rounds.depth, "As concertd's")->check(CLI::Range(1, 64));
  app.add_option("--backlog-us", rounds.backlog_us, "As concertd's")->check(CLI::Range(0, 10000));
  app.add_option("--batches", rounds.batches, "Of each scenario")->check(CLI::Range(100, 1000000));
  app.add_option("--in-flight", rounds.in_flight, "Batches at a time")->check(CLI::Range(1, 8));
  const std::pair<const char*, double*> values[] = {
      {"--turn-us", &costs.turn},
      {"--admit-op-us", &costs.admit_op},
      {"--launch-us", &costs.launch},
      {"--launch-op-us", &costs.launch_op},
      {"--finish-op-us", &costs.finish_op},
      {"--group-call-us", &costs.group_call},
      {"--library-call-us", &costs.library_call},
      {"--to-start-us", &costs.to_start},
      {"--to-visible-us", &costs.to_visible},
      {"--submit-batch-us", &costs.submit_batch},
      {"--submit-op-us", &costs.submit_op},
  };
  for (const auto& [name, value] : values) {
    app.add_option(name, *value)->capture_default_str()->group("Costs (struct HostCosts)");
  }
  CLI11_PARSE(app, argc, argv);
  if (policies::FindPolicy(rounds.policy) == nullptr) {
    std::cerr << "there is no policy named " << rounds.policy << "\n";
    return 1;
  }
  return Run(options);
}

}  // namespace
}  // namespace concert::bench

int main(int argc, char** argv) { return concert::bench::Main(argc, argv); }
