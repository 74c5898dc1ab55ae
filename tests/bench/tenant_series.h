// What a mode of suite "tenants" or "steps" measured, lap by lap, and what a result file says of
// it.
#ifndef CONCERT_TESTS_BENCH_TENANT_SERIES_H_
#define CONCERT_TESTS_BENCH_TENANT_SERIES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "tests/bench/plan_log.h"
#include "tests/bench/speedup_summary.h"
#include "tests/bench/tenant_crew.h"
#include "tests/bench/tenant_group.h"

namespace concert::bench {

// Of one client's runs, in microseconds.
class ClientLatencies {
 public:
  void AddLap(const std::vector<double>& runs_us);
  bool empty() const { return all_.empty(); }
  double p99() const;
  // {"p50", "p99"} over all laps' runs, and of the laps' own medians and p99s the p10 and p90:
  // {"p50_p10", "p50_p90", "p99_p10", "p99_p90"}.
  nlohmann::json Describe() const;

 private:
  std::vector<double> all_, medians_, p99s_;
};

// Vectors of clients are empty until the first lap.
struct TenantSeries {
  std::vector<double> us_per_unit;               // [lap], of all clients together
  std::vector<std::vector<double>> units_per_s;  // [client][lap]
  std::vector<ClientLatencies> latencies, solo_latencies;
  std::vector<double> solo_units_per_s;  // [client]
  std::vector<LoggedPlan> plans;
  std::vector<FirstRun> first_runs;  // [process]
  std::vector<RegisteredProgram> programs;
  std::vector<double> errors;  // [client]: relative, the largest of all checks
  absl::Status failure;        // of a baseline that cannot run the scenario

  void AddLap(const TenantCrew::Lap& lap);
  void AddErrors(const std::vector<double>& of_clients);
  std::vector<double> ClientMedians() const;  // units a second of each client
  double worst_error() const;
};
using SeriesByMode = std::map<std::string, TenantSeries>;

// A scenario's entry of the result, with rivals in order of appearance; some may be missing. Where
// none of them is missing, "speedup_over" is the geometric mean of the clients' own speed-ups:
// clients with unequal runs count units of unequal size, whose sum says little.
nlohmann::json DescribeTenants(const TenantGroup& group, const SeriesByMode& series,
                               const Rivals& rivals);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_TENANT_SERIES_H_
