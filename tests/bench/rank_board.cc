#include "tests/bench/rank_board.h"

#include <sys/mman.h>

#include "tests/bench/shared_word.h"

namespace concert::bench {
namespace {

constexpr uint64_t kStartLimitNs = 20'000'000'000;  // for the last rank to arrive

}  // namespace

void UnmapRankBoard::operator()(RankBoard* board) const { munmap(board, sizeof(RankBoard)); }

absl::StatusOr<MappedRankBoard> MapRankBoard(const std::string& path, bool create) {
  const absl::StatusOr<void*> mapped = MapSharedFile(path, sizeof(RankBoard), create);
  if (!mapped.ok()) return mapped.status();
  return MappedRankBoard(static_cast<RankBoard*>(*mapped));
}

void CallCommand(RankBoard& board) {
  board.arrived.store(0, std::memory_order_relaxed);  // also after a command that failed half-way
  board.command.fetch_add(1, std::memory_order_release);  // for AwaitCommand's acquire
  WakeSleepers(board.command);
}

uint32_t AwaitCommand(const RankBoard& board, uint32_t seen) {
  for (;;) {
    const uint32_t command = board.command.load(std::memory_order_acquire);  // of CallCommand
    if (command != seen) return command;
    SleepWhile(board.command, seen);
  }
}

absl::StatusOr<uint64_t> StartTogether(RankBoard& board) {
  // Nobody can start the next run before this rank arrives for it, so the word still says what it
  // said when the last run began.
  const uint32_t before = board.started.load(std::memory_order_relaxed);
  if (board.arrived.fetch_add(1, std::memory_order_acq_rel) % board.ranks == board.ranks - 1) {
    board.start_ns = NowNs();
    board.started.store(before + 1, std::memory_order_release);  // for the load below
    return board.start_ns;
  }
  const uint64_t limit = NowNs() + kStartLimitNs;
  while (board.started.load(std::memory_order_acquire) == before) {
    if (NowNs() > limit) return absl::DeadlineExceededError("a rank did not come to the start");
  }
  return board.start_ns;
}

}  // namespace concert::bench
