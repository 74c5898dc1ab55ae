// How the contenders of suite "gemm" take turns, and how their results are checked.
//
// Contenders share memory: the baselines work on the operands and outputs of concert. So outputs
// are poisoned before every turn whose results are checked, those of the first and the last round.
// What is found behind it is the work of that contender alone. None of it lies in a timed window.
#ifndef CONCERT_TESTS_BENCH_GEMM_TURNS_H_
#define CONCERT_TESTS_BENCH_GEMM_TURNS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/contender.h"
#include "tests/bench/gemm_workload.h"

namespace concert::bench {

struct Entrant {
  std::string name;
  std::unique_ptr<Contender> contender;
  std::vector<double> samples_us;  // per batch
};

// One way of computing one batch at a time.
struct IsolatedEntrant {
  std::string name;
  // Batch i works on operand set i % sets; microseconds.
  std::function<absl::StatusOr<double>(int batch)> run;
  std::vector<double> samples_us;
};

// Turns of about 2 ms, in a new order each round. Adds a sample per round to each entrant, and
// takes `worst` to the largest relative error seen. DATA_LOSS, naming the entrant, when results are
// wrong.
absl::Status TakeTurns(std::vector<Entrant>& entrants, const GemmWorkload& workload, bool is_sim,
                       int rounds, double& worst);

// Blocks of batches one at a time. All entrants work on the memory of `memory`, which poisons and
// checks it.
absl::Status TakeTurnsAlone(std::vector<IsolatedEntrant>& entrants, Contender& memory,
                            const GemmWorkload& workload, bool is_sim, double& worst);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_GEMM_TURNS_H_
