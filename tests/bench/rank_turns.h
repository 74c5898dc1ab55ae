// Contenders of the suites "c3" and "collectives" take turns, round by round.
#ifndef CONCERT_TESTS_BENCH_RANK_TURNS_H_
#define CONCERT_TESTS_BENCH_RANK_TURNS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "tests/bench/rank_crew.h"

namespace concert::bench {

struct RankTurn {
  size_t contender = 0;
  bool gemms = false, collective = false;
  uint32_t runs = 2;     // that count, at most kMaxRuns with the lead-in
  uint32_t lead_in = 1;  // runs before those, since another process had the GPU
  int every = 1;         // rounds
  std::function<void(const RunTimes&)> add;
};

// In a new order each round: who always follows the same one finds the GPU as hot as that one
// leaves it. The error is of the first turn that fails.
absl::Status TakeRankTurns(RankCrew& crew, const std::vector<RankTurn>& turns, int rounds);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_RANK_TURNS_H_
