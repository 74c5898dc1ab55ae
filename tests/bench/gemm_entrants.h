// Who takes part in suite "gemm".
#ifndef CONCERT_TESTS_BENCH_GEMM_ENTRANTS_H_
#define CONCERT_TESTS_BENCH_GEMM_ENTRANTS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tests/bench/daemon_contender.h"
#include "tests/bench/gemm_turns.h"
#include "tests/bench/local_gpu.h"
#include "tests/bench/node_under_test.h"
#include "tests/bench/speedup_summary.h"

namespace concert::bench {

// The daemons and the GPU that last for the whole run.
struct Arena {
  NodeUnderTest concert;
  std::unique_ptr<LocalGpu> local;  // null on the simulator

  // Another daemon with a policy of its own; its form is called `name` in the result.
  struct Other {
    std::string name;
    NodeUnderTest node;
  };
  std::vector<Other> others;

  Rivals rivals;                   // among those who take part
  std::vector<std::string> forms;  // forced ones, likewise
};

// Opens everything and fills in the result's header. Policies that this build does not know stand
// in its "left_out".
absl::StatusOr<Arena> OpenArena(const RunOptions& options, nlohmann::json& header);

// The contenders of one scenario. All but other daemons work on the memory of `concert`.
struct Entrants {
  std::vector<Entrant> steady;         // concert first
  std::vector<IsolatedEntrant> alone;  // likewise
  DaemonContender* concert = nullptr;  // in `steady`
};

// A baseline that its library cannot compute is left out. The arena and the workload, whose image
// is made here, must outlive the entrants.
absl::StatusOr<Entrants> MakeEntrants(const Arena& arena, GemmWorkload& workload);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_GEMM_ENTRANTS_H_
