#include "tests/bench/rank_board.h"

#include <filesystem>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/bench/shared_word.h"

namespace concert::bench {
namespace {

TEST(RankBoardTest, RanksTakeCommandsAndStartTogether) {
  constexpr uint32_t kRanks = 3;
  constexpr int kRounds = 200;
  const std::string path = testing::TempDir() + "/concert_rank_board_test";
  std::filesystem::remove(path);
  const absl::StatusOr<MappedRankBoard> mapped = MapRankBoard(path, /*create=*/true);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  RankBoard& board = **mapped;
  board.ranks = kRanks;
  std::vector<std::vector<uint64_t>> starts(kRanks);
  std::vector<std::jthread> ranks;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      const uint32_t command = AwaitCommand(board, 0);
      for (int round = 0; round < kRounds; ++round) {
        const uint64_t arrived_ns = NowNs();
        const absl::StatusOr<uint64_t> start = StartTogether(board);
        ASSERT_TRUE(start.ok()) << start.status();
        EXPECT_GE(*start, arrived_ns) << "a run began before all had come";
        starts[rank].push_back(*start);
      }
      board.slots[rank].done.store(command, std::memory_order_release);
    });
  }
  CallCommand(board);
  ranks.clear();  // joins
  EXPECT_EQ(starts[0].size(), static_cast<size_t>(kRounds));
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(starts[rank], starts[0]);
    EXPECT_EQ(board.slots[rank].done.load(), 1u);
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace concert::bench
