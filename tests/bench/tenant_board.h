// The memory that the suites "tenants" and "steps" share with their client processes.
#ifndef CONCERT_TESTS_BENCH_TENANT_BOARD_H_
#define CONCERT_TESTS_BENCH_TENANT_BOARD_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tests/bench/shared_word.h"

namespace concert::bench {

constexpr int kMaxTenants = 64;
constexpr uint32_t kMaxLatencies = 16384;  // of a lap; a run takes 20 us and more
constexpr uint32_t kLastLap = UINT32_MAX;  // no lap: check the results and end

enum class TenantState : uint32_t { kStarting = 0, kReady, kDone, kFailed };

// What a client is at, for whoever has to say where it failed.
enum class TenantStep : uint32_t {
  kInputs = 0,
  kTurn,
  kGpu,
  kFirstRuns,
  kFirstCheck,
  kLaps,
  kLastCheck
};
const char* StepName(TenantStep step);  // "opening the GPU"

// A client's program: how long it took from its first op recorded to the daemon's answer, and from
// then on to the end of its first run. 0: it has none.
struct FirstRun {
  double registering_ms, run_ms;
};

// One client. Its process writes, the suite reads after `state` or `laps_done` says that it may:
// both are stored with release and loaded with acquire. Of several clients of one process the
// first one's slot says how the process fares.
struct TenantSlot {
  std::atomic<TenantState> state;
  std::atomic<TenantStep> step;
  std::atomic<uint32_t> laps_done;
  std::array<char, 512> message;  // why it failed
  double worst_error;             // of the results before the first lap and after the last one
  FirstRun first_run;
  // Runs within the lap's window; those that its ends cut count by their share of time in it.
  double runs;
  uint32_t latency_count;  // of runs that ended in it, the first kMaxLatencies
  std::array<float, kMaxLatencies> latencies_us;
};

// All fields zero at first. The suite fills in a lap's, then stores `lap` with release and wakes
// the futex on it; a client loads it with acquire.
struct TenantBoard {
  std::atomic<uint32_t> turn;  // whose turn it is to open the GPU: one client after the other
  std::atomic<uint32_t> lap;   // 1, 2, ...; kLastLap
  uint32_t warmup_us, window_us;
  uint64_t participants;  // bit i: slot i
  uint32_t expected;      // processes that have a participant
  // The start: each of these processes arrives, and the last one stores the moment
  // (CLOCK_MONOTONIC, which is the same in all processes) with release for the others' acquire.
  std::atomic<uint32_t> arrived;
  std::atomic<uint64_t> start_ns;
  std::array<TenantSlot, kMaxTenants> slots;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

struct UnmapBoard {
  void operator()(TenantBoard* board) const;
};
using MappedBoard = std::unique_ptr<TenantBoard, UnmapBoard>;

// Maps the file, which `create` makes first.
absl::StatusOr<MappedBoard> MapBoard(const std::string& path, bool create);

// Raises board.lap and wakes everybody who waits for it.
void CallLap(TenantBoard& board, uint32_t lap);
// Returns a lap other than `done`. Sleeps meanwhile: this process is to leave the CPUs to others.
uint32_t AwaitLap(const TenantBoard& board, uint32_t done);

// Sleeps until it is client `index`'s turn, and gives it to the next one.
void AwaitTurn(const TenantBoard& board, uint32_t index);
void PassTurn(TenantBoard& board);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_TENANT_BOARD_H_
