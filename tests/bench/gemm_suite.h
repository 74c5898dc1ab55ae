// Suite "gemm": GEMMs that become ready together, through concert and with cuBLASLt alone.
#ifndef CONCERT_TESTS_BENCH_GEMM_SUITE_H_
#define CONCERT_TESTS_BENCH_GEMM_SUITE_H_

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "tests/bench/suite.h"

namespace concert::bench {

// Contenders take turns round by round, starting with another one each round, so that clocks and
// temperature move all of them alike. Results are checked in the first and the last round
// (gemm_turns.h). Then batches run one at a time.
//
// Baselines: on a GPU, cuBLASLt and cuBLAS called by this process on the same operands
// ("baseline_path": "local"). The simulator has neither; there they are private daemons with the
// policies `serial` and `streams` ("baseline_path": "policy"). Other policies and forced forms are
// private daemons everywhere.
absl::Status RunGemmSuite(const RunOptions& options, nlohmann::json& result);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_GEMM_SUITE_H_
