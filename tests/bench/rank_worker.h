// One rank of the suites "c3" and "collectives": concert-bench itself in a hidden mode.
#ifndef CONCERT_TESTS_BENCH_RANK_WORKER_H_
#define CONCERT_TESTS_BENCH_RANK_WORKER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/bench/rank_client.h"

namespace concert::bench {

struct RankOptions {
  std::string board;                    // file that the suite has made
  uint32_t rank = 0;                    // also the GPU's index in daemons
  std::string gpu_uuid;                 // 32 hexadecimal digits
  std::vector<std::string> contenders;  // each the path of a daemon's socket, or "local:WAY"
  RankMemorySizes sizes;
};

// Carries out the board's commands until kEnd.
absl::Status RunRank(const RankOptions& options);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_RANK_WORKER_H_
