// Suite "overhead": what the way client -> ring -> daemon adds to launching a tiny kernel oneself.
#ifndef CONCERT_TESTS_BENCH_OVERHEAD_SUITE_H_
#define CONCERT_TESTS_BENCH_OVERHEAD_SUITE_H_

#include <iosfwd>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "tests/bench/suite.h"

namespace concert::bench {

// Both ways run the same GEMM with the same kernel, the one that the daemon takes in the scenario,
// on the same kind of device through the same code (daemon/device), from the call to the moment
// when the host sees the timeline. They alternate in blocks of 200 ops; one op is in flight.
//
// "added_us" is the difference of the quantiles of all samples of each way, "added_us_by_block" the
// median over blocks of the differences of the blocks' quantiles (tests/bench/statistics.h).
//
// Scenario `seven_busy`: seven more client processes each keep one such op in flight while the
// ring's blocks run. They are stopped (SIGSTOP) during the local blocks, because on a GPU two
// processes' contexts take turns in time slices of some 300 us, which would drown what is measured.
absl::Status RunOverheadSuite(const RunOptions& options, nlohmann::json& result);

void PrintOverheadResult(const nlohmann::json& result, std::ostream& out);

// The busy client: a closed loop of tiny GEMMs until it is interrupted. Creates the file
// `ready_path` when the first is done.
absl::Status RunClientLoad(const std::string& socket, const std::string& ready_path);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_OVERHEAD_SUITE_H_
