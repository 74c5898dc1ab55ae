// The issuer's answers to dispatchers that have no room for them.
#include "daemon/sched/collective_issuer.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <deque>
#include <vector>

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

}  // namespace
}  // namespace concert::daemon
