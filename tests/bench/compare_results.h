// What changed between two result files of one suite.
#ifndef CONCERT_TESTS_BENCH_COMPARE_RESULTS_H_
#define CONCERT_TESTS_BENCH_COMPARE_RESULTS_H_

#include <iosfwd>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace concert::bench {

// Compares two results that ValidateResult finds right:
//   old, new    commit, date and rounds of each
//   warnings    what of machine, libraries and options differs, and which file has no scatter
//   baselines   geomean of NEW/OLD of each baseline's own time: how far the machines are apart
//   changes     per scenario and kind of time: "time", NEW/OLD of concert's own time, and
//               "speedup", NEW/OLD of its speed-up over the best baseline that both have, from
//               "old_speedup" to "new_speedup"; "time_changed" and "speedup_changed" say whether
//               the ranges p10..p90 of the two keep apart, and are left out without a scatter
//   summary     per kind of time, of both: geomean, worst and worst_scenario, and the names of
//               those that are faster and slower beyond the scatter
//   only_in_old, only_in_new, not_the_same (one name, but not what is measured)
//
// Kinds are "together", and "isolated" in suite gemm; "p50" and "p99" in suite overhead. In suite
// tenants a scenario's time is the geometric mean of its clients'. INVALID_ARGUMENT where the
// suites differ or one device is simulated and the other not, NOT_FOUND where no scenario is in
// both.
absl::StatusOr<nlohmann::json> CompareResults(const nlohmann::json& old_result,
                                              const nlohmann::json& new_result);

// What CompareResults returns, for a reader.
void PrintChanges(const nlohmann::json& comparison, std::ostream& out);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_COMPARE_RESULTS_H_
