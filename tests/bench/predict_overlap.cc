// Predicts the suite `c3` without a GPU, on the simulator's model of a node: every form that the
// policy may choose, what `auto` makes of it and which form would be best. `--out` writes a result
// as the suite's own, for tests/bench/report_model.py, which holds it against a measured one.
// Deterministic.
#include <cstdio>
#include <iostream>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "policies/seam/policy.h"
#include "tests/bench/c3_result.h"
#include "tests/bench/gpu_models.h"
#include "tests/bench/model_overlap.h"
#include "tests/bench/rank_contender.h"
#include "tests/bench/result_file.h"
#include "tests/bench/scenario_file.h"

namespace concert::bench {
namespace {

using nlohmann::json;

struct Options {
  std::string scenarios = "tests/bench/scenarios/c3.json";
  std::string filter, out, policy = "auto", gpu = "h200";
  uint32_t gpus = 2;
};

json HeaderOf(const Options& options) {
  json forms = json::array(), baselines = json::array();
  for (const C3Member& form : C3Forms()) forms.push_back(form.contender.name);
  for (const C3Member& one : C3Baselines(/*by_policies=*/true))
    baselines.push_back(one.contender.name);
  return {{"device", "sim"},
          {"simulated", true},
          {"gpu", "concert simulator"},
          {"model", options.gpu},
          {"gpus", options.gpus},
          {"commit", ""},
          {"date", ""},
          {"policy", options.policy},
          {"rounds", 1},
          {"baseline_path", "policy"},
          {"baselines", baselines},
          {"forms", forms}};
}

void PrintRow(const json& entry) {
  std::printf("%-34s %8.1f us; %-18s best %8.1f us\n", entry["name"].get<std::string>().c_str(),
              entry["times_us"]["concert"]["p50"].get<double>(),
              entry["oracle"]["form"].get<std::string>().c_str(),
              entry["oracle"]["p50"].get<double>());
}

absl::Status Run(const Options& options) {
  const auto scenarios = ReadOverlapScenarios(options.scenarios, options.filter);
  if (!scenarios.ok()) return scenarios.status();
  json result = NewResult("c3");
  result["header"] = HeaderOf(options);
  for (const OverlapScenario& scenario : *scenarios) {
    if (scenario.collective.ranks > options.gpus) continue;
    absl::StatusOr<json> entry = ModelC3Entry(scenario, GpuModelOf(options.gpu), options.policy);
    if (!entry.ok()) return entry.status();
    PrintRow(*entry);
    result["scenarios"].push_back(*std::move(entry));
  }
  const Rivals rivals{.baselines = result["header"]["baselines"]};
  result["summary"] = OverlapSummary(result["scenarios"], rivals, kC3LossTolerance);
  return options.out.empty() ? absl::OkStatus() : WriteResult(result, options.out);
}

int Main(int argc, char** argv) {
  CLI::App app{"Predicts the suite c3 without a GPU"};
  Options options;
  app.add_option("--scenarios", options.scenarios, "Suite file")->check(CLI::ExistingFile);
  app.add_option("--filter", options.filter, "Only scenarios that match (POSIX extended)");
  app.add_option("--policy", options.policy, "Of concert; as concertd's");
  app.add_option("--gpus", options.gpus, "Of the node")->check(CLI::Range(2, 8));
  app.add_option("--gpu", options.gpu, "What they are models of")
      ->check(CLI::IsMember(GpuModelNames()));
  app.add_option("--out", options.out, "Write the result to this JSON file");
  CLI11_PARSE(app, argc, argv);
  if (policies::FindPolicy(options.policy) == nullptr) {
    std::cerr << "there is no policy named " << options.policy << "\n";
    return 1;
  }
  const absl::Status ran = Run(options);
  if (!ran.ok()) std::cerr << ran.message() << "\n";
  return ran.ok() ? 0 : 1;
}

}  // namespace
}  // namespace concert::bench

int main(int argc, char** argv) { return concert::bench::Main(argc, argv); }
