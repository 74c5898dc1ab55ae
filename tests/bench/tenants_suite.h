// Suite "tenants": processes that share a GPU, through concert and each for itself.
#ifndef CONCERT_TESTS_BENCH_TENANTS_SUITE_H_
#define CONCERT_TESTS_BENCH_TENANTS_SUITE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tests/bench/scenario_file.h"
#include "tests/bench/suite.h"
#include "tests/bench/tenant_group.h"
#include "tests/bench/tenant_turns.h"

namespace concert::bench {

// Every client of a scenario is a process with a chain of dependent GEMMs in a closed loop. Modes:
//   concert      through a private daemon
//   time_sliced  each calls cuBLASLt itself, its chain replayed from a CUDA graph
//   mps          the same under NVIDIA's MPS, which is started and stopped here; no daemon runs
//   serial       on the simulator, instead of the last two: a daemon with that policy
// Every kind of client also has a scenario to itself (ReadTenantScenarios), against
//   local_graph  the same process, its chain replayed from a CUDA graph; on the simulator serial
//
// The first two (on the simulator, first and last) run in turns of one lap each; mps has turns of
// its own between theirs. Modes that this machine cannot run stand in the header's "left_out"; a
// baseline that fails in one scenario stands in its "unavailable", with the reason. Where concert
// fails, so does the scenario.
absl::Status RunTenantsSuite(const RunOptions& options, nlohmann::json& result);

TenantGroup GroupOf(const TenantScenario& scenario);
// One scenario's entry of the result.
absl::StatusOr<nlohmann::json> MeasureTenants(const TenantStage& stage,
                                              const TenantScenario& scenario);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_TENANTS_SUITE_H_
