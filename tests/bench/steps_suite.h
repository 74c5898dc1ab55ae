// Suite "steps": processes that each run whole decode or prefill steps on one GPU, through concert
// and with PyTorch.
#ifndef CONCERT_TESTS_BENCH_STEPS_SUITE_H_
#define CONCERT_TESTS_BENCH_STEPS_SUITE_H_

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "tests/bench/suite.h"

namespace concert::bench {

// Every client of a scenario is a process that decodes one token of each of its sequences a step,
// or of role prefill takes in a chunk of new tokens of each, in a closed loop. Modes:
//   concert                 a step is a program, run through a private daemon
//   ops                     the same ops one by one, a batch a step, through another such daemon
//   time_sliced             each client replays a CUDA graph of PyTorch's compiled step
//   mps                     the same under NVIDIA's MPS; no daemon runs
//   graphs_in_one_process   one process replays the graphs of all, each on a stream of its own
//
// All but mps take turns lap by lap; mps has its own turn behind theirs. The last three, where
// PyTorch is missing, not wanted or the device is the simulator, stand in the header's "left_out".
// One client alone has time_sliced, which is then its graph with nobody to share with, and no other
// of the three. What fails is treated as in suite "tenants".
absl::Status RunStepsSuite(const RunOptions& options, nlohmann::json& result);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_STEPS_SUITE_H_
