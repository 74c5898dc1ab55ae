#include "daemon/session/user_turns.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace concert::daemon {
namespace {

TEST(UserTurnsTest, NobodyHasATurnWhoDoesNotWaitForOne) {
  UserTurns turns;
  EXPECT_EQ(turns.Next(), std::nullopt);
  turns.Want(1, 1000);
  turns.Want(2, 1001);
  turns.Forget(1);
  turns.Forget(3);
  EXPECT_TRUE(turns.anybody_waits());
  EXPECT_EQ(turns.Next(), 2u);
  EXPECT_FALSE(turns.anybody_waits());
  EXPECT_EQ(turns.Next(), std::nullopt);
}

TEST(UserTurnsTest, AUserWithManySessionsHasNoMoreTurns) {
  UserTurns turns;
  std::map<uint32_t, int> had;
  for (uint32_t session = 1; session <= 100; ++session) turns.Want(session, 1001);
  turns.Want(101, 1000);
  for (int turn = 0; turn < 200; ++turn) {
    const uint32_t next = *turns.Next();
    ++had[next];
    turns.Want(next, next == 101 ? 1000 : 1001);  // all want again at once
  }
  EXPECT_EQ(had[101], 100);
  for (uint32_t session = 1; session <= 100; ++session) EXPECT_EQ(had[session], 1) << session;
}

TEST(UserTurnsTest, SessionsOfAUserHaveTurnsInTheOrderInWhichTheyWait) {
  UserTurns turns;
  for (const uint32_t session : {7, 3, 5, 4}) turns.Want(session, 1000);
  turns.Forget(5);
  EXPECT_EQ(turns.Next(), 7u);
  turns.Want(7, 1000);
  for (const uint32_t session : {3, 4, 7}) EXPECT_EQ(turns.Next(), session);
  EXPECT_FALSE(turns.anybody_waits());
}

TEST(UserTurnsTest, AUserWhoComesAnewIsBehindThoseWhoWait) {
  UserTurns turns;
  turns.Want(1, 1000);
  turns.Want(2, 1001);
  turns.Want(3, 1002);
  turns.Forget(1);
  turns.Want(1, 1000);
  for (const uint32_t session : {2, 3, 1}) EXPECT_EQ(turns.Next(), session);
}

}  // namespace
}  // namespace concert::daemon
