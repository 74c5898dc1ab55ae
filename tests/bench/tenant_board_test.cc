#include "tests/bench/tenant_board.h"

#include <filesystem>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace concert::bench {
namespace {

TEST(TenantBoardTest, BothSidesSeeOneBoardThatBeginsWithZeros) {
  const std::string path = testing::TempDir() + "/concert_tenant_board_test";
  std::filesystem::remove(path);
  EXPECT_FALSE(MapBoard(path, /*create=*/false).ok());
  const absl::StatusOr<MappedBoard> suite = MapBoard(path, /*create=*/true);
  ASSERT_TRUE(suite.ok()) << suite.status();
  EXPECT_FALSE(MapBoard(path, /*create=*/true).ok());  // somebody else's
  const absl::StatusOr<MappedBoard> client = MapBoard(path, /*create=*/false);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ((*client)->slots[3].state.load(), TenantState::kStarting);

  uint32_t lap = 0;
  uint64_t participants = 0;
  std::jthread thread([&] {
    lap = AwaitLap(**client, 0);
    participants = (*client)->participants;
    (*client)->slots[3].laps_done.store(lap);
  });
  (*suite)->participants = 8;
  CallLap(**suite, 1);
  thread.join();
  EXPECT_EQ(lap, 1u);
  EXPECT_EQ(participants, 8u);
  EXPECT_EQ((*suite)->slots[3].laps_done.load(), 1u);
  std::filesystem::remove(path);
}

TEST(TenantBoardTest, ClientsHaveTheirTurnsInOrder) {
  const std::string path = testing::TempDir() + "/concert_tenant_turns_test";
  std::filesystem::remove(path);
  const absl::StatusOr<MappedBoard> board = MapBoard(path, /*create=*/true);
  ASSERT_TRUE(board.ok()) << board.status();
  std::vector<uint32_t> order;  // written by whoever's turn it is
  {
    std::vector<std::jthread> clients;
    for (const uint32_t index : {3u, 1u, 2u, 0u}) {
      clients.emplace_back([&, index] {
        AwaitTurn(**board, index);
        order.push_back(index);
        PassTurn(**board);
      });
    }
  }
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace concert::bench
