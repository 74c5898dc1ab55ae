// Clients of suite `tenants` without a GPU and without waiting: the real dispatcher, scheduler and
// policy in virtual time, launching on the simulator's model of a GPU. What the dispatcher and the
// clients take of the host are constants (HostCosts). Times are modelled; no number is computed.
#ifndef CONCERT_TESTS_BENCH_MODEL_TENANTS_H_
#define CONCERT_TESTS_BENCH_MODEL_TENANTS_H_

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/scenario_file.h"
#include "tests/bench/timed_bed.h"

namespace concert::bench {

struct ModelOptions {
  std::string scenarios;  // a file of suite `tenants`
  std::string filter;     // POSIX extended; empty: all
  // The first is what the others are compared with.
  std::vector<std::string> policies = {"serial", "streams", "auto"};
  double run_time_ms = 50;  // of the model
  HostCosts costs;
};

struct ModelClient {
  std::string name;
  int priority = 0;
  std::vector<double> steps_us;  // of each step, from its submission to when its client saw its end
};

struct ModelOutcome {
  std::vector<ModelClient> clients;
  double co_run_share = 0;  // share of the ops that others were planned with
  double run_time_us = 0;

  // Of the clients whose priority is not high, if there are any such: steps in all, and the median.
  double StepsPerSecond() const;
  double StepUs() const;
  // Of the clients with the highest priority there is. NaN if they have no step.
  double HighestClassUs(double quantile) const;
};

// INVALID_ARGUMENT for a policy that there is not or a chain that the model does not take,
// DEADLINE_EXCEEDED if nothing happens any more before the time is over. Deterministic.
absl::StatusOr<ModelOutcome> ModelTenants(const TenantScenario& scenario, const std::string& policy,
                                          const ModelOptions& options);

// `concert-bench model`: a table for every scenario; without a filter, for those of several
// clients.
absl::Status RunModel(const ModelOptions& options, std::ostream& out);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_MODEL_TENANTS_H_
