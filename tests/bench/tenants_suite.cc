#include "tests/bench/tenants_suite.h"

#include <algorithm>
#include <string>

#include "tests/bench/node_under_test.h"
#include "tests/bench/plan_log.h"
#include "tests/bench/result_file.h"
#include "tests/bench/speedup_summary.h"
#include "tests/bench/tenant_series.h"

namespace concert::bench {
namespace {

using nlohmann::json;

// Opens the node for as long as its description takes, and decides who takes part.
absl::StatusOr<TenantStage> SetStage(const RunOptions& options, json& header) {
  const absl::StatusOr<NodeUnderTest> node = OpenNodeUnderTest(options);
  if (!node.ok()) return node.status();
  TenantStage stage;
  stage.options = options;
  stage.place = PlaceOf(*node, "tenants");
  header = MakeHeader(*node, options);
  header.update(DescribeLaps(stage));
  const TenantMode concert{.name = "concert", .policy = options.policy};
  if (stage.place.is_sim) {
    header["baseline_path"] = "policy";
    stage.turns = {{concert, {.name = "serial", .policy = "serial"}}};
    stage.alone = stage.turns;
    stage.rivals.baselines = {"serial"};
  } else {
    header["baseline_path"] = "local";
    stage.turns = {{concert, {.name = "time_sliced", .policy = ""}}};
    stage.rivals.baselines = {"time_sliced"};
    AddMps({.name = "mps", .policy = "", .mps = true}, stage, header);
    stage.alone = {{concert, {.name = "local_graph", .policy = ""}}};
    stage.rivals.baselines.push_back("local_graph");
  }
  header["baselines"] = stage.rivals.baselines;
  return stage;
}

}  // namespace

TenantGroup GroupOf(const TenantScenario& scenario) {
  TenantGroup group{.scenario = scenario.name, .clients = {}};
  for (const TenantScenario::Client& client : scenario.clients) {
    group.clients.push_back({.name = ClientName(client),
                             .priority = client.priority,
                             .units = static_cast<double>(client.chain.gemms.size())});
  }
  return group;
}

absl::StatusOr<json> MeasureTenants(const TenantStage& stage, const TenantScenario& scenario) {
  const TenantGroup group = GroupOf(scenario);
  const absl::StatusOr<SeriesByMode> series = MeasureModes(stage, group);
  if (!series.ok()) return series.status();
  json entry = DescribeTenants(group, *series, stage.rivals);
  double worst = 0;
  for (const auto& [mode, measured] : *series) worst = std::max(worst, measured.worst_error());
  entry["max_rel_error"] = worst;
  entry.update(DescribePlans(series->at("concert").plans, /*gemms=*/1));
  return entry;
}

absl::Status RunTenantsSuite(const RunOptions& options, json& result) {
  const auto scenarios = ReadTenantScenarios(options.scenarios, options.filter);
  if (!scenarios.ok()) return scenarios.status();
  return MeasureTenantScenarios(options, *scenarios, SetStage, MeasureTenants, result);
}

}  // namespace concert::bench
