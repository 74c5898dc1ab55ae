#include "tests/bench/tenant_board.h"

#include <sys/mman.h>

#include "tests/bench/shared_word.h"

namespace concert::bench {

const char* StepName(TenantStep step) {
  switch (step) {
    case TenantStep::kInputs:
      return "making its inputs";
    case TenantStep::kTurn:
      return "waiting for its turn to open the GPU";
    case TenantStep::kGpu:
      return "opening the GPU";
    case TenantStep::kFirstRuns:
      return "running for the first time";
    case TenantStep::kFirstCheck:
      return "checking its first results";
    case TenantStep::kLaps:
      return "running laps";
    case TenantStep::kLastCheck:
      return "checking its last results";
  }
  return "?";
}

void UnmapBoard::operator()(TenantBoard* board) const { munmap(board, sizeof(TenantBoard)); }

absl::StatusOr<MappedBoard> MapBoard(const std::string& path, bool create) {
  const absl::StatusOr<void*> mapped = MapSharedFile(path, sizeof(TenantBoard), create);
  if (!mapped.ok()) return mapped.status();
  // A new file reads as zeros, which is what every field begins with.
  return MappedBoard(static_cast<TenantBoard*>(*mapped));
}

void CallLap(TenantBoard& board, uint32_t lap) {
  board.lap.store(lap, std::memory_order_release);  // for AwaitLap's acquire
  WakeSleepers(board.lap);
}

uint32_t AwaitLap(const TenantBoard& board, uint32_t done) {
  for (;;) {
    const uint32_t lap = board.lap.load(std::memory_order_acquire);  // of CallLap's release
    if (lap != done) return lap;
    SleepWhile(board.lap, done);
  }
}

void AwaitTurn(const TenantBoard& board, uint32_t index) {
  for (;;) {
    const uint32_t turn = board.turn.load(std::memory_order_acquire);  // of PassTurn's release
    if (turn >= index) return;
    SleepWhile(board.turn, turn);
  }
}

void PassTurn(TenantBoard& board) {
  board.turn.fetch_add(1, std::memory_order_release);  // for AwaitTurn's acquire
  WakeSleepers(board.turn);
}

}  // namespace concert::bench
