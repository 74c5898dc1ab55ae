// What a mode of suite "tenants" measured, lap by lap, and what a result file says of it.
#ifndef CONCERT_TESTS_BENCH_TENANT_SERIES_H_
#define CONCERT_TESTS_BENCH_TENANT_SERIES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "tests/bench/plan_log.h"
#include "tests/bench/scenario_file.h"
#include "tests/bench/tenant_crew.h"

namespace concert::bench {

// Of one client's chains, in microseconds.
class ClientLatencies {
 public:
  void AddLap(const std::vector<double>& chains_us);
  bool empty() const { return all_.empty(); }
  double p99() const;
  // {"p50", "p99"} over all laps' chains, and of the laps' own medians and p99s the p10 and p90:
  // {"p50_p10", "p50_p90", "p99_p10", "p99_p90"}.
  nlohmann::json Describe() const;

 private:
  std::vector<double> all_, medians_, p99s_;
};

// Vectors of clients are empty until the first lap.
struct TenantSeries {
  std::vector<double> us_per_gemm;               // [lap], of all clients together
  std::vector<std::vector<double>> gemms_per_s;  // [client][lap]
  std::vector<ClientLatencies> latencies, solo_latencies;
  std::vector<LoggedPlan> plans;
  absl::Status failure;  // of a baseline that cannot run the scenario

  void AddLap(const TenantCrew::Lap& lap);
  std::vector<double> ClientMedians() const;  // GEMMs a second of each client
};
using SeriesByMode = std::map<std::string, TenantSeries>;

// A scenario's entry of the result. `baselines` in order of appearance; some may be missing. Where
// none of them is missing, "speedup_over" is the geometric mean of the clients' own speed-ups:
// clients with unequal chains make GEMMs of unequal size, whose sum says little.
nlohmann::json DescribeTenants(const TenantScenario& scenario, const SeriesByMode& series,
                               const std::vector<std::string>& baselines);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_TENANT_SERIES_H_
