#include "daemon/session/communicators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace concert::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CommunicatorsTest : public testing::Test {
 protected:
  Communicators::Joined Join(uint32_t uid, uint32_t rank, int gpu, uint32_t ranks = 2) {
    const auto joined = communicators_.Join(uid, "tp", rank, ranks, gpu);
    EXPECT_TRUE(joined.ok()) << joined.status();
    return joined.value_or(Communicators::Joined());
  }
  std::string Refusal(uint32_t uid, const std::string& name, uint32_t rank, uint32_t ranks) {
    return std::string(communicators_.Join(uid, name, rank, ranks, 0).status().message());
  }

  Communicators communicators_;
};

// A name means something to its user only: nobody's ranks meet another user's, whatever they say.
TEST_F(CommunicatorsTest, RanksOfDifferentUsersNeverMeet) {
  const auto mine = Join(1000, 0, 0), theirs = Join(1001, 1, 1);
  EXPECT_NE(mine.communicator, theirs.communicator);
  EXPECT_FALSE(mine.complete);
  EXPECT_FALSE(theirs.complete) << "one rank of two users each";
  const auto second = Join(1000, 1, 1);
  EXPECT_EQ(second.communicator, mine.communicator);
  EXPECT_TRUE(second.complete);
  EXPECT_THAT(second.gpus, ElementsAre(0, 1));
  EXPECT_THAT(Refusal(1000, "tp", 1, 2), HasSubstr("rank 1 of communicator 'tp' is taken"));
  EXPECT_EQ(Join(1001, 0, 0).communicator, theirs.communicator) << "free to its own user";
}

TEST_F(CommunicatorsTest, RanksMayShareAGpu) {
  Join(1000, 0, 1);
  const auto joined = Join(1000, 1, 1);
  EXPECT_TRUE(joined.complete);
  EXPECT_THAT(joined.gpus, ElementsAre(1, 1));
}

TEST_F(CommunicatorsTest, WhatDoesNotFitIsRefusedWithASentence) {
  Join(1000, 0, 0);
  EXPECT_THAT(Refusal(1000, "", 0, 2), HasSubstr("name is empty"));
  EXPECT_THAT(Refusal(1000, "tp", 1, 3), HasSubstr("ranks is 3, but communicator 'tp' has 2"));
  EXPECT_THAT(Refusal(1000, "other", 2, 2), HasSubstr("rank is 2; it must be below ranks (2)"));
  EXPECT_THAT(Refusal(1000, "other", 0, 0), HasSubstr("ranks is 0"));
}

TEST_F(CommunicatorsTest, ANameIsFreeOnceARankHasLeft) {
  const uint32_t first = Join(1000, 0, 0).communicator;
  Join(1000, 1, 1);
  communicators_.Leave(first);
  const auto again = Join(1000, 0, 0);
  EXPECT_NE(again.communicator, first);
  EXPECT_FALSE(again.complete);
}

}  // namespace
}  // namespace concert::daemon
