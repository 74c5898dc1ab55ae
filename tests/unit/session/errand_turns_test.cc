#include "daemon/session/errand_turns.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace concert::daemon {
namespace {

TEST(ErrandTurnsTest, NobodyHasATurnWhoDoesNotWaitForOne) {
  ErrandTurns turns;
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

TEST(ErrandTurnsTest, AUserWithManySessionsHasNoMoreTurns) {
  ErrandTurns turns;
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

TEST(ErrandTurnsTest, WhoHadATurnIsForgotten) {
  ErrandTurns turns;
  for (uint32_t session = 1; session <= 10 * ErrandTurns::kRemembered; ++session) {
    turns.Want(session, session);
    turns.Next();
  }
  EXPECT_EQ(turns.remembered(), 2 * ErrandTurns::kRemembered);
}

}  // namespace
}  // namespace concert::daemon
