// What every suite of scenarios does around the measuring of one.
#ifndef CONCERT_TESTS_BENCH_SCENARIO_LOOP_H_
#define CONCERT_TESTS_BENCH_SCENARIO_LOOP_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/bench/progress.h"
#include "tests/bench/suite.h"

namespace concert::bench {

// Measures one scenario after the other until the user interrupts, and fills in the scenarios and
// the summary of `result`: `measure(scenario)` gives an entry, `summarise(entries)` the summary, to
// which what was skipped and what failed is added. After each scenario `options.keep` gets it.
// INTERNAL if a scenario failed, CANCELLED if interrupted; what was measured stands in `result` all
// the same.
template <class Scenario, class Measure, class Summarise>
absl::Status MeasureScenarios(const RunOptions& options, const std::vector<Scenario>& scenarios,
                              Measure&& measure, Summarise&& summarise, nlohmann::json& result) {
  using nlohmann::json;
  json skipped = json::array(), failed = json::array();
  const auto add_summary = [&] {
    result["summary"] = summarise(result["scenarios"]);
    result["summary"].update({{"skipped", skipped}, {"failed", failed}});
  };
  absl::Status interrupted;
  Progress progress(scenarios.size());
  for (const Scenario& scenario : scenarios) {
    progress.Step(scenario.name);
    if constexpr (requires { scenario.unsupported; }) {
      if (!scenario.unsupported.empty()) {
        skipped.push_back({{"name", scenario.name}, {"why", scenario.unsupported}});
        continue;
      }
    }
    const absl::StatusOr<json> entry = measure(scenario);
    if (absl::IsCancelled(entry.status()) && Interrupted()) {
      interrupted = entry.status();
      break;
    }
    if (entry.ok()) {
      result["scenarios"].push_back(*entry);
    } else {
      failed.push_back({{"name", scenario.name}, {"why", entry.status().ToString()}});
    }
    add_summary();
    options.keep(result);
  }
  add_summary();
  if (!interrupted.ok()) return interrupted;
  if (failed.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(failed.size(), " of ", scenarios.size(),
                                          " scenarios failed; the first: ", failed[0].dump()));
}

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_SCENARIO_LOOP_H_
