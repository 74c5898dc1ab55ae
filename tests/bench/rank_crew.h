// The rank processes of the suites "c3" and "collectives".
#ifndef CONCERT_TESTS_BENCH_RANK_CREW_H_
#define CONCERT_TESTS_BENCH_RANK_CREW_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/child_process.h"
#include "tests/bench/rank_board.h"
#include "tests/bench/rank_client.h"

namespace concert::bench {

// What one run took, until all ranks had seen it; 0: did not run.
struct RunTimes {
  double gemms_us = 0, collective_us = 0;
  double both_us() const { return gemms_us > collective_us ? gemms_us : collective_us; }
};

// One process a rank, each with all contenders and their memory: they live through all scenarios.
// Errors name the rank and its reason. After CANCELLED, or a rank that has ended, nothing more
// works.
class RankCrew {
 public:
  struct Options {
    std::vector<std::string> gpu_uuids;   // by rank; 32 hexadecimal digits each
    std::vector<std::string> contenders;  // as RankOptions::contenders
    RankMemorySizes sizes;
  };

  // Starts them and returns when all have opened everything.
  static absl::StatusOr<std::unique_ptr<RankCrew>> Start(const Options& options);
  ~RankCrew();

  // Makes the task's operands in the memory of every contender.
  absl::Status Prepare(const OverlapTask& task);
  // One run of everything with outputs poisoned before: the largest relative error. NOT_FOUND where
  // the contender cannot do the task, DATA_LOSS where results are wrong.
  absl::StatusOr<double> Verify(size_t contender);
  // At most kMaxRuns runs, one after the other, each begun by all ranks at once.
  absl::StatusOr<std::vector<RunTimes>> Run(size_t contender, bool gemms, bool collective,
                                            uint32_t runs);

 private:
  explicit RankCrew(std::string folder) : folder_(std::move(folder)) {}
  absl::Status Call(RankCommand what, uint32_t contender = 0);
  absl::Status AwaitRank(size_t rank, uint64_t limit_ns);
  std::string Log() const;

  const std::string folder_;
  MappedRankBoard board_;
  std::vector<ChildProcess> ranks_;
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_RANK_CREW_H_
