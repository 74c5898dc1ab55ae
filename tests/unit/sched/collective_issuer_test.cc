// The issuer's answers to dispatchers that have no room for them, and its news.
#include "daemon/sched/collective_issuer.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "daemon/quota/budget.h"
#include "tests/unit/sched/null_node.h"

namespace concert::daemon {
namespace {

class CollectiveIssuerTest : public testing::Test {
 protected:
  CollectiveIssuerTest() { issuer_.Start({&boxes_[0], &boxes_[1]}); }
  ~CollectiveIssuerTest() override { issuer_.Stop(); }

  // One rank of two: its part waits until FailAll gives it back.
  void OfferPart(uint32_t communicator, uint8_t gpu, OpId id) {
    IssuerMessage join(IssuerMessage::Type::kJoin);
    join.communicator = communicator;
    join.join = {.ranks = 2, .account = &accounts_.Of(1000)};
    Tell(join);
    Op& op = ops_.emplace_back();
    op.kind = CONCERT_OP_BARRIER;
    op.collective = {};
    IssuerMessage part(IssuerMessage::Type::kPart);
    part.communicator = communicator;
    part.part = {.gpu = gpu, .op = &op, .id = id};
    Tell(part);
  }
  void FailAll() {
    IssuerMessage all(IssuerMessage::Type::kFailAll);
    all.failure = {CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_DRAIN_TIMEOUT, {1}};
    Tell(all);
  }
  void Tell(const IssuerMessage& message) { ASSERT_TRUE(issuer_.mailbox().TryPush(message)); }
  // The next answer in a GPU's box. A hang is this test's failure, by its time limit.
  DispatcherMessage Take(int gpu) {
    DispatcherMessage message;
    while (!boxes_[gpu].TryPop(message)) sched_yield();
    return message;
  }
  void Fill(int gpu) {
    while (boxes_[gpu].TryPush(DispatcherMessage(DispatcherMessage::Type::kWake))) {
    }
  }

  NullNode node_{2};
  Accounts accounts_{Limits()};
  std::deque<Op> ops_;
  DispatcherMailbox boxes_[2]{DispatcherMailbox(2), DispatcherMailbox(2)};
  CollectiveIssuer issuer_{{}, node_};
};

TEST_F(CollectiveIssuerTest, ADispatcherWithoutRoomKeepsNoOtherWaiting) {
  Fill(0);
  for (OpId id = 1; id <= 4; ++id) OfferPart(id, /*gpu=*/0, id);
  FailAll();
  OfferPart(5, /*gpu=*/1, 5);
  EXPECT_EQ(Take(1).part.op, 5u);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Take(0).type, DispatcherMessage::Type::kWake);
  std::vector<OpId> answered;
  for (int i = 0; i < 4; ++i) {
    const DispatcherMessage answer = Take(0);
    EXPECT_EQ(answer.type, DispatcherMessage::Type::kPartFailed);
    answered.push_back(answer.part.op);
  }
  std::sort(answered.begin(), answered.end());
  EXPECT_EQ(answered, (std::vector<OpId>{1, 2, 3, 4}));
}

TEST_F(CollectiveIssuerTest, StopsWhileAnswersFindNoRoom) {
  Fill(0);
  OfferPart(1, /*gpu=*/0, 1);
  FailAll();
  OfferPart(2, /*gpu=*/1, 2);
  while (boxes_[1].empty()) sched_yield();  // so the first part's answer has been tried
  issuer_.Stop();
}

// Of a communicator of three on two GPUs, driven turn by turn.
class NewsTest : public testing::Test {
 protected:
  static constexpr uint32_t kRanks = 3;

  explicit NewsTest(uint32_t capacity = kDispatcherMailboxCapacity)
      : boxes_{DispatcherMailbox(capacity), DispatcherMailbox(capacity)} {
    // So that turns are the test's.
    issuer_.Start({&boxes_[0], &boxes_[1]});
    issuer_.Stop();
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      IssuerMessage join(IssuerMessage::Type::kJoin);
      join.communicator = 1;
      join.rank = rank;
      join.join = {.ranks = kRanks, .account = &accounts_.Of(1000)};
      EXPECT_TRUE(issuer_.mailbox().TryPush(join));
    }
    issuer_.Turn(0);
  }

  // The rank's part, whose id is the rank.
  void OfferPart(uint32_t rank) {
    ops_[rank].kind = CONCERT_OP_BARRIER;
    ops_[rank].collective = {};
    IssuerMessage part(IssuerMessage::Type::kPart);
    part.communicator = 1;
    part.rank = rank;
    part.part = {.gpu = static_cast<int>(rank % 2), .op = &ops_[rank], .id = rank};
    ASSERT_TRUE(issuer_.mailbox().TryPush(part));
  }
  std::vector<DispatcherMessage> Taken(int gpu) {
    std::vector<DispatcherMessage> taken;
    DispatcherMessage message;
    while (boxes_[gpu].TryPop(message)) taken.push_back(message);
    return taken;
  }

  NullNode node_{2};
  Accounts accounts_{Limits()};
  Op ops_[kRanks];
  DispatcherMailbox boxes_[2];
  CollectiveIssuer issuer_{{}, node_};
};

TEST_F(NewsTest, EveryGpuThatWaitsHearsOfTheRanksThatAreThere) {
  OfferPart(0);
  issuer_.Turn(10);
  EXPECT_TRUE(Taken(0).empty());
  OfferPart(1);
  issuer_.Turn(20);
  for (const uint32_t rank : {0, 1}) {
    const std::vector<DispatcherMessage> taken = Taken(static_cast<int>(rank));
    ASSERT_EQ(taken.size(), 1u);
    EXPECT_EQ(taken[0].type, DispatcherMessage::Type::kRanksThere);
    EXPECT_EQ(taken[0].news.op, rank);
    EXPECT_EQ(taken[0].news.ranks_there, 2);
    EXPECT_EQ(taken[0].news.since, 20);
  }
  OfferPart(2);
  issuer_.Turn(30);
  EXPECT_EQ(Taken(0).size(), 2u);  // of ranks 0 and 2
  const std::vector<DispatcherMessage> taken = Taken(1);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].type, DispatcherMessage::Type::kPartLaunched);
}

// Others' collectives have their turns in between.
TEST_F(NewsTest, WhatACommunicatorLeavesBehindIsAnsweredOverTurns) {
  constexpr uint32_t kBudget = PerTurn(Work::kEndings), kInATurn = kBudget / 2;  // op and part
  std::vector<Op> ops(kBudget);
  for (uint32_t i = 0; i < kBudget; ++i) {
    ops[i].kind = CONCERT_OP_BARRIER;
    ops[i].collective = {.sequence = i};
    IssuerMessage part(IssuerMessage::Type::kPart);
    part.communicator = 1;
    part.part = {.gpu = 0, .op = &ops[i], .id = i};
    ASSERT_TRUE(issuer_.mailbox().TryPush(part));
  }
  issuer_.Turn(10);
  IssuerMessage all(IssuerMessage::Type::kFailAll);
  all.failure = {CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_DRAIN_TIMEOUT, {1}};
  ASSERT_TRUE(issuer_.mailbox().TryPush(all));
  EXPECT_TRUE(issuer_.Turn(20)) << "there is more";
  EXPECT_EQ(Taken(0).size(), kInATurn);
  issuer_.Turn(30);
  EXPECT_EQ(Taken(0).size(), kInATurn);
  EXPECT_FALSE(issuer_.Turn(40));
  EXPECT_TRUE(Taken(0).empty());
}

TEST_F(NewsTest, RanksOfOneTurnAreOneMessage) {
  OfferPart(0);
  OfferPart(1);
  issuer_.Turn(10);
  EXPECT_EQ(Taken(0).size(), 1u);
  EXPECT_EQ(Taken(1).size(), 1u);
}

// Half of the box is not theirs: what must arrive would be late.
TEST_F(NewsTest, NewsThatFindLittleRoomAreLostAndNothingElseIs) {
  for (uint32_t i = 0; i <= kDispatcherMailboxCapacity - kRoomWithoutNews; ++i) {
    ASSERT_TRUE(boxes_[0].TryPush(DispatcherMessage(DispatcherMessage::Type::kWake)));
  }
  OfferPart(0);
  OfferPart(1);
  issuer_.Turn(10);
  OfferPart(2);
  issuer_.Turn(20);
  size_t launched = 0;
  for (const DispatcherMessage& message : Taken(0)) {
    EXPECT_NE(message.type, DispatcherMessage::Type::kRanksThere);
    launched += message.type == DispatcherMessage::Type::kPartLaunched;
  }
  EXPECT_EQ(launched, 2u);
  const std::vector<DispatcherMessage> other = Taken(1);
  ASSERT_EQ(other.size(), 2u);
  EXPECT_EQ(other[0].type, DispatcherMessage::Type::kRanksThere);
  EXPECT_EQ(other[1].type, DispatcherMessage::Type::kPartLaunched);
}

}  // namespace
}  // namespace concert::daemon
