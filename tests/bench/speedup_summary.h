// What a suite's scenarios say together.
#ifndef CONCERT_TESTS_BENCH_SPEEDUP_SUMMARY_H_
#define CONCERT_TESTS_BENCH_SPEEDUP_SUMMARY_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace concert::bench {

// With whom concert is compared: names in `times_us`. Others there are measured for other reasons.
struct Rivals {
  std::vector<std::string> baselines;  // doing without concert; the fastest is "best_baseline"
  std::vector<std::string> policies;   // other policies of the daemon
};

// {"p50": ...} over the p50 of concert, per rival that has a time and for "best_baseline". Empty
// where concert has none.
nlohmann::json SpeedupOver(const nlohmann::json& times_us, const Rivals& rivals);

// Of what the scenarios' own "speedup_over" say, or SpeedupOver where they have none:
// "speedup_over": per rival geomean, worst (and where) and best; "by_class": the geomeans of each
// class; "lost_to_best_baseline": the scenarios where concert is slower than the best baseline by
// more than `tolerance` (a share, e.g. 0.02).
nlohmann::json SpeedupSummary(const nlohmann::json& scenarios, const Rivals& rivals,
                              double tolerance);

// In how many scenarios ("scenarios") every form was measured, in how many of them concert is
// within 3 % of the fastest ("within_3_percent"), and what it costs on average ("mean_loss"). Null
// for none.
nlohmann::json OracleSummary(const nlohmann::json& scenarios);

// What SpeedupSummary says, and of suite "tenants" every client that would do better without
// concert:
//   client_losses  {"scenario", "client", "clients": how many alike, "over": the rival, "what":
//                  "throughput" or "p99", "speedup": the geomean of the clients' own}, worst first,
//                  where the speed-up is below 1 by more than `tolerance`
nlohmann::json TenantsSummary(const nlohmann::json& scenarios, const Rivals& rivals,
                              double tolerance);

// What SpeedupSummary says, and of suite "gemm":
//   roofline_share    geomean of (bound_us + 2) / concert's time: a launch costs some 2 us at best
//   isolated_speedup  geomean, worst and best of isolated_local / isolated
//   isolated_speedup_over_graph  the same of isolated_graph / isolated
//   oracle            OracleSummary
//   prediction_error  the median of the scenarios' own
nlohmann::json GemmSummary(const nlohmann::json& scenarios, const Rivals& rivals, double tolerance);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_SPEEDUP_SUMMARY_H_
