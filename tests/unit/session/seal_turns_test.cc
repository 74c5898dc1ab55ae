#include "daemon/session/seal_turns.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace concert::daemon {
namespace {

TEST(SealTurnsTest, NobodyHasATurnWhoDoesNotWantOne) {
  SealTurns turns;
  EXPECT_EQ(turns.Next(), std::nullopt);
  turns.Want(1, 1000);
  EXPECT_EQ(turns.Next(), 1u);
  EXPECT_EQ(turns.Next(), std::nullopt);
  turns.Want(1, 1000);
  turns.EndTurn();
  EXPECT_EQ(turns.Next(), std::nullopt);  // it says so again if it wants another
}

TEST(SealTurnsTest, AUserWithManySessionsHasNoMoreTurns) {
  SealTurns turns;
  std::map<uint32_t, int> had;
  for (int turn = 0; turn < 200; ++turn) {
    for (uint32_t session = 1; session <= 100; ++session) turns.Want(session, 1001);
    turns.Want(101, 1000);
    ++had[*turns.Next()];
    turns.EndTurn();
  }
  EXPECT_EQ(had[101], 100);
  for (uint32_t session = 1; session <= 100; ++session) EXPECT_EQ(had[session], 1) << session;
}

TEST(SealTurnsTest, WhoHadATurnIsForgotten) {
  SealTurns turns;
  for (uint32_t session = 1; session <= 10 * SealTurns::kRemembered; ++session) {
    turns.Want(session, session);
    turns.Next();
  }
  EXPECT_EQ(turns.size(), 2 * SealTurns::kRemembered);
}

}  // namespace
}  // namespace concert::daemon
