// Suite "c3": a GEMM beside an independent collective, on every GPU.
#ifndef CONCERT_TESTS_BENCH_C3_SUITE_H_
#define CONCERT_TESTS_BENCH_C3_SUITE_H_

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "tests/bench/suite.h"

namespace concert::bench {

// A process a rank, each with its GPU's GEMMs on one queue and its part of the collective on
// another; a run lasts from the moment when all ranks are released until all have seen the end of
// both. Contenders take turns round by round, in one process life:
//   concert   the daemon under --policy
//   serial, streams, priority   cuBLASLt and NCCL called by the ranks: one stream; two, the
//             collective launched first; the same, the collective's stream of high priority
//   conccl    the same as `priority`, but by NCCL's copy engines (zero-CTA), where those carry it
//   form_...  with options.forms: daemons held to one transport and one policy each
// On the simulator the first four are daemons with these policies. All are verified in every
// scenario before they are timed. A baseline or form that fails stands in the scenario's
// "unavailable"; where concert fails, so does the scenario. Scenarios with more GPUs than the node
// has are skipped.
absl::Status RunC3Suite(const RunOptions& options, nlohmann::json& result);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_C3_SUITE_H_
