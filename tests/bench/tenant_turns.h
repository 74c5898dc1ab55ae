// Takes a scenario's modes through their turns, whatever its clients run.
#ifndef CONCERT_TESTS_BENCH_TENANT_TURNS_H_
#define CONCERT_TESTS_BENCH_TENANT_TURNS_H_

#include <chrono>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tests/bench/node_under_test.h"
#include "tests/bench/scenario_loop.h"
#include "tests/bench/speedup_summary.h"
#include "tests/bench/suite.h"
#include "tests/bench/tenant_cast.h"
#include "tests/bench/tenant_series.h"

namespace concert::bench {

// Who takes part, and for how long.
struct TenantStage {
  RunOptions options;
  TenantPlace place;
  // Those of one turn run side by side, lap by lap; turns exclude each other.
  std::vector<std::vector<TenantMode>> turns;
  std::vector<std::vector<TenantMode>> alone;  // the same for scenarios of one client
  Rivals rivals;
  // Twenty laps of 50 ms say more than four of 250: their scatter shows. A lap is long against the
  // runs and the slices of some 2 ms that processes get in turn, and runs that its ends cut count
  // by their share.
  std::chrono::milliseconds lap{50};
};

// As many laps of every mode as the options say rounds. Before the first, where there are several
// clients, each kind of client has laps while its neighbours sleep. A baseline that cannot run says
// so in its series; where a mode with a daemon fails, this does.
absl::StatusOr<SeriesByMode> MeasureModes(const TenantStage& stage, const TenantGroup& group);

// The keys that the header of such a suite has beyond everybody's.
nlohmann::json DescribeLaps(const TenantStage& stage);

// Of the node's first GPU.
TenantPlace PlaceOf(const NodeUnderTest& node, const std::string& suite);

// Adds the mode, if MPS is installed and no --socket's daemon keeps running beside it, as a turn
// of its own and to the baselines; else why not to header["left_out"].
void AddMps(const TenantMode& mode, TenantStage& stage, nlohmann::json& header);

// The least share by which a mode loses to a baseline that counts.
inline constexpr double kTenantLossTolerance = 0.02;

// A suite of such scenarios: `set_stage`(options, header) says who takes part, `measure`(stage,
// scenario) what came of it.
template <typename Scenario, typename SetStage, typename Measure>
absl::Status MeasureTenantScenarios(const RunOptions& options,
                                    const std::vector<Scenario>& scenarios,
                                    const SetStage& set_stage, const Measure& measure,
                                    nlohmann::json& result) {
  // Before anything is started, which would inherit it.
  absl::Status left = options.device == "sim" ? absl::OkStatus() : LeaveMps();
  if (!left.ok()) return left;
  const absl::StatusOr<TenantStage> stage = set_stage(options, result["header"]);
  if (!stage.ok()) return stage.status();
  return MeasureScenarios(
      options, scenarios, [&](const Scenario& scenario) { return measure(*stage, scenario); },
      [&](const nlohmann::json& entries) {
        return TenantsSummary(entries, stage->rivals, kTenantLossTolerance);
      },
      result);
}

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_TENANT_TURNS_H_
