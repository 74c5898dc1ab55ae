// Suite "gemm": GEMMs that become ready together, through concert and with cuBLASLt alone.
#ifndef CONCERT_TESTS_BENCH_GEMM_SUITE_H_
#define CONCERT_TESTS_BENCH_GEMM_SUITE_H_

#include <iosfwd>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "tests/bench/suite.h"

namespace concert::bench {

// Contenders take turns round by round, starting with another one each round, so that clocks and
// temperature move all of them alike. Every contender's results are checked before it is timed and
// the last ones after.
//
// Baselines: on a GPU, cuBLASLt called by this process on the same operands ("baseline_path":
// "local"). The simulator has no cuBLASLt; there they are private daemons with the policies
// `serial` and `streams`
// ("baseline_path": "policy").
absl::Status RunGemmSuite(const RunOptions& options, nlohmann::json& result);

void PrintGemmResult(const nlohmann::json& result, std::ostream& out);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_GEMM_SUITE_H_
