// Scenarios of suite `c3` without a GPU and without waiting: for every GPU the real dispatcher,
// scheduler and policy, and the real coordinator between them, in virtual time, launching on the
// simulator's model of a node. No number is computed.
#ifndef CONCERT_TESTS_BENCH_MODEL_OVERLAP_H_
#define CONCERT_TESTS_BENCH_MODEL_OVERLAP_H_

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "policies/seam/transport.h"
#include "policies/seam/work.h"
#include "tests/bench/rank_contender.h"
#include "tests/bench/scenario_file.h"

namespace concert::bench {

// Microseconds from when the ranks are released until all of them have seen the end.
struct ModelledRun {
  double us = 0;
  double gemms_us = 0, collective_us = 0;
  policies::TransportChoice choice;  // the collective's
  int gemm_sms = 0;                  // of the first GEMM's launch; 0: all
};

// One run of the scenario by daemons of the contender's policy, or of parts of it, on GPUs of this
// model. DEADLINE_EXCEEDED if it does not end. Deterministic. REQUIRES: contender.policy is a
// policy's name.
absl::StatusOr<ModelledRun> ModelOverlap(const OverlapScenario& scenario,
                                         const policies::DeviceModel& gpu,
                                         const RankContender& contender, bool gemms,
                                         bool collective);

// The scenario's entry as suite `c3` has it, of concert with `policy`, of its baselines by policies
// and of every form; and "pick": the way that concert's collective took ("p2p, 8 SMs") and its
// first GEMM's SMs.
absl::StatusOr<nlohmann::json> ModelC3Entry(const OverlapScenario& scenario,
                                            const policies::DeviceModel& gpu,
                                            const std::string& policy);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_MODEL_OVERLAP_H_
