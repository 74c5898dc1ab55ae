// The memory that the suites "c3" and "collectives" share with their rank processes.
#ifndef CONCERT_TESTS_BENCH_RANK_BOARD_H_
#define CONCERT_TESTS_BENCH_RANK_BOARD_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/collective_shape.h"
#include "tests/bench/scenario_file.h"

namespace concert::bench {

constexpr uint32_t kMaxBoardRanks = 16;
constexpr uint32_t kMaxRuns = 64;          // of one command
constexpr uint32_t kMaxCommunicators = 4;  // of NCCL

// What ranks do side by side: the GEMMs of their GPU, their part of the collective, or both.
struct OverlapTask {
  GemmShape gemm;
  uint32_t repeat = 1;
  CollectiveShape collective;
};

enum class RankCommand : uint32_t {
  kOpen = 0,  // makes its clients
  kPrepare,   // takes `task`
  kRun,       // `contender` runs it `runs` times
  kVerify,    // `contender` runs it once, outputs poisoned before and checked after
  kEnd
};

struct RunEnds {
  uint64_t gemms_ns = 0, collective_ns = 0;  // since the start; 0: was not wanted
};

// One rank's process. It writes, the suite reads once `done` says that it may.
struct RankSlot {
  std::atomic<uint32_t> done;  // the last command carried out
  std::atomic<int> code;       // absl::StatusCode of that: 0, or `message` says why
  std::array<char, 1024> message;
  double worst_error;                  // of kVerify
  std::array<RunEnds, kMaxRuns> ends;  // of kRun
};

// All fields zero at first. The suite fills in a command's, then stores `command` with release and
// wakes the futex on it; ranks load it with acquire. Ranks answer with `done`, release to acquire.
struct RankBoard {
  std::atomic<uint32_t> command;  // 1, 2, ...: how many there have been
  RankCommand what;
  OverlapTask task;
  uint32_t contender;
  uint32_t runs;
  bool gemms, collective;  // what runs
  // The start of a run: every rank arrives, and the last one stores the moment, which `started`
  // publishes.
  uint32_t ranks;
  std::atomic<uint32_t> arrived, started;
  uint64_t start_ns;  // CLOCK_MONOTONIC
  // Of NCCL's communicators, from rank 0: `ids_known` of them.
  std::atomic<uint32_t> ids_known;
  std::array<std::array<char, 128>, kMaxCommunicators> ids;
  std::array<RankSlot, kMaxBoardRanks> slots;
};

struct UnmapRankBoard {
  void operator()(RankBoard* board) const;
};
using MappedRankBoard = std::unique_ptr<RankBoard, UnmapRankBoard>;

// Maps the file, which `create` makes first.
absl::StatusOr<MappedRankBoard> MapRankBoard(const std::string& path, bool create);

// Raises board.command and wakes the ranks.
void CallCommand(RankBoard& board);
// Returns a command other than `seen`. Sleeps meanwhile.
uint32_t AwaitCommand(const RankBoard& board, uint32_t seen);

// All ranks start at the same moment, which this returns. DEADLINE_EXCEEDED if one does not come.
absl::StatusOr<uint64_t> StartTogether(RankBoard& board);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_RANK_BOARD_H_
