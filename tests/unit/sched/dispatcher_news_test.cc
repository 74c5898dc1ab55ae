// News of a collective's ranks on their way through a dispatcher to its policy.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/bench/dispatcher_bed.h"
#include "tests/bench/null_device.h"

namespace concert::daemon {
namespace {

using policies::WaitingCollective;

// Launches the first ready op alone and keeps which collectives wait.
class KeepsWaiting : public policies::Policy {
 public:
  explicit KeepsWaiting(std::vector<WaitingCollective>& waiting) : waiting_(waiting) {}
  void Decide(const policies::Snapshot& snapshot, policies::Plan& plan) override {
    waiting_.assign(snapshot.waiting.begin(), snapshot.waiting.end());
    plan.Clear();
    const bool collective = snapshot.ready[0].work.runs_on == policies::RunsOn::kLinks;
    plan.AddSingle(0, policies::Form::kSingle, collective ? policies::kCollectiveLane : Lane{0}, 5);
  }

 private:
  std::vector<WaitingCollective>& waiting_;
};

class DispatcherNewsTest : public testing::Test {
 protected:
  static constexpr uint32_t kHandle = 1 << 8;

  DispatcherNewsTest() {
    policy_.policy = std::make_unique<KeepsWaiting>(waiting_);
    DispatcherMessage replace(DispatcherMessage::Type::kSetPolicy);
    replace.replacement = &policy_;
    bed_.Tell(replace);
    DispatcherMessage member(DispatcherMessage::Type::kAddMembership, bed_.IdOf(0));
    member.membership = {.handle = kHandle, .communicator = 1, .rank = 0, .ranks = 4};
    bed_.Tell(member);
  }

  // The id of the part that the dispatcher offers.
  OpId OfferBarrier() {
    concert_descriptor barrier{};
    barrier.queue = 0;
    barrier.kind = CONCERT_OP_BARRIER;
    barrier.body.collective.communicator = kHandle;
    bed_.Write(0, barrier);
    bed_.Ring(0);
    bed_.Turn(now_ += 1'000);
    IssuerMessage offer;
    EXPECT_TRUE(bed_.issuer().TryPop(offer));
    EXPECT_EQ(offer.type, IssuerMessage::Type::kPart);
    return offer.part.id;
  }
  const std::vector<WaitingCollective>& Look() {
    const std::vector<bench::GemmShape> gemm = {{.m = 16, .n = 2048, .k = 2048}};
    bed_.Submit(gemm, /*first_queue=*/1, /*set=*/0);
    for (int i = 0; i < 4; ++i) bed_.Turn(now_ += 1'000);
    return waiting_;
  }

  std::vector<WaitingCollective> waiting_;
  Replacement policy_;
  bench::NullDevice gpu_;
  bench::DispatcherBed bed_{gpu_, "serial", {.scheduler = {.max_ops = 64}}, /*queues=*/2};
  Time now_ = 1'000;
};

TEST_F(DispatcherNewsTest, ReachThePolicyUntilThePartIsLaunched) {
  const OpId part = OfferBarrier();
  ASSERT_EQ(Look().size(), 1u);
  EXPECT_EQ(waiting_[0].op, part);
  EXPECT_EQ(waiting_[0].ranks_there, 1);
  EXPECT_EQ(waiting_[0].work.ranks, 4);
  DispatcherMessage news(DispatcherMessage::Type::kRanksThere);
  news.news = {.op = part, .ranks_there = 3, .since = now_};
  bed_.Tell(news);
  ASSERT_EQ(Look().size(), 1u);
  EXPECT_EQ(waiting_[0].ranks_there, 3);
  EXPECT_EQ(waiting_[0].since, news.news.since);
  DispatcherMessage launched(DispatcherMessage::Type::kPartLaunched);
  launched.part = {.op = part, .failure = {}, .launched_at = now_};
  bed_.Tell(launched);
  EXPECT_TRUE(Look().empty());
}

}  // namespace
}  // namespace concert::daemon
