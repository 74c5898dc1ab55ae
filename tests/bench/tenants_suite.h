// Suite "tenants": processes that share a GPU, through concert and each for itself.
#ifndef CONCERT_TESTS_BENCH_TENANTS_SUITE_H_
#define CONCERT_TESTS_BENCH_TENANTS_SUITE_H_

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "tests/bench/suite.h"

namespace concert::bench {

// Every client of a scenario is a process with a chain of dependent GEMMs in a closed loop. Modes:
//   concert      through a private daemon
//   time_sliced  each calls cuBLASLt itself, its chain replayed from a CUDA graph
//   mps          the same under NVIDIA's MPS, which is started and stopped here; no daemon runs
//   then serial       on the simulator, instead of the last two: a daemon with that policy
//
// The first two (on the simulator, first and last) run in turns of one lap each; mps has turns of
// its own between theirs. Modes that this machine cannot run stand in the header's "left_out".
absl::Status RunTenantsSuite(const RunOptions& options, nlohmann::json& result);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_TENANTS_SUITE_H_
