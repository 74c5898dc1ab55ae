// What the engine hands to dispatchers: who frees it, and what happens when nobody takes it.
#include "daemon/sched/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "policies/cost/collective_cost.h"
#include "tests/unit/sched/null_node.h"

namespace concert::daemon {
namespace {

using policies::TunedTable;
using testing::HasSubstr;

class EngineTest : public testing::Test {
 protected:
  // Its threads are not started.
  std::unique_ptr<Engine> MakeEngine() {
    EngineOptions options;
    options.policy = "serial";
    RecordRing* rings[] = {&records_};
    return Engine::Create(options, node_, rings).value();
  }

  NullNode node_{1};
  RecordRing records_{0};
};

TEST_F(EngineTest, WhatNobodyHasReadIsFreedWithTheEngine) {
  auto engine = MakeEngine();
  auto table = std::make_shared<const TunedTable>();
  const std::weak_ptr<const TunedTable> watch = table;
  ASSERT_TRUE(engine->SetTuned(0, std::move(table)).ok());
  ASSERT_TRUE(engine->SetTuned(0, nullptr).ok());
  ASSERT_TRUE(engine->SetPolicy("streams").ok());
  EXPECT_FALSE(watch.expired()) << "its message may still be read";
  engine.reset();
  EXPECT_TRUE(watch.expired());
}

TEST_F(EngineTest, WhatWasReplacedIsFreedByItsOwnerNotByTheDispatcher) {
  auto engine = MakeEngine();
  auto table = std::make_shared<const TunedTable>();
  const std::weak_ptr<const TunedTable> watch = table;
  ASSERT_TRUE(engine->SetTuned(0, std::move(table)).ok());
  engine->dispatcher(0).Turn(1);
  ASSERT_TRUE(engine->SetTuned(0, nullptr).ok());
  engine->dispatcher(0).Turn(2);
  EXPECT_FALSE(watch.expired()) << "the dispatcher's turn freed it";
  engine->FreeReplaced();
  EXPECT_TRUE(watch.expired());
}

TEST_F(EngineTest, WhatWasMeasuredOfTransportsGoesToTheIssuerToo) {
  auto engine = MakeEngine();
  policies::TransportCurves curves = policies::CurvesOf(nullptr);
  curves.Of(policies::Transport::kPeer, 2).floor_us = 1;
  ASSERT_TRUE(engine
                  ->SetTuned(0, std::make_shared<const TunedTable>(
                                    std::vector<policies::TunedRow>(), curves))
                  .ok());
  IssuerMessage message;
  ASSERT_TRUE(engine->issuer().TryPop(message));
  ASSERT_EQ(message.type, IssuerMessage::Type::kUseCurves);
  EXPECT_EQ(message.curves.gpu, 0);
  EXPECT_EQ(message.curves.replacement->curves.Of(policies::Transport::kPeer, 2).floor_us, 1);
}

TEST_F(EngineTest, ADispatcherThatTakesNoMessagesIsNamedAndNobodyWaitsForEver) {
  const auto engine = MakeEngine();
  absl::Status status;
  int posted = 0;
  constexpr int kMoreThanFit = 1 << 16;
  while (status.ok() && posted < kMoreThanFit) {
    status =
        Post(engine->dispatcher(0).mailbox(), DispatcherMessage(DispatcherMessage::Type::kWake));
    ++posted;
  }
  ASSERT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  const auto table = std::make_shared<const TunedTable>();
  const absl::Status refused = engine->SetTuned(0, table);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("GPU 0: the dispatcher has taken no"));
}

// A policy that says when it ends and what it was told to use.
class WatchedPolicy : public policies::Policy {
 public:
  explicit WatchedPolicy(bool& ended) : ended_(ended) {}
  ~WatchedPolicy() override { ended_ = true; }
  void Decide(const policies::Snapshot&, policies::Plan&) override {}
  void UseTuned(std::shared_ptr<const TunedTable> tuned) override { tuned_ = std::move(tuned); }
  const TunedTable* tuned() const { return tuned_.get(); }

 private:
  bool& ended_;
  std::shared_ptr<const TunedTable> tuned_;
};

class ReplacementTest : public testing::Test {
 protected:
  void Tell(DispatcherMessage::Type type, Replacement& replacement) {
    DispatcherMessage message(type);
    message.replacement = &replacement;
    ASSERT_TRUE(dispatcher_.mailbox().TryPush(message));
    ASSERT_FALSE(replacement.done.load());
    dispatcher_.Turn(1);
    EXPECT_TRUE(replacement.done.load());
  }

  bool first_ended_ = false, second_ended_ = false;
  WatchedPolicy* const first_ = new WatchedPolicy(first_ended_);
  bench::NullDevice gpu_;
  ControlMailbox control_{16};
  IssuerMailbox issuer_{16};
  RecordRing records_{0};
  Dispatcher dispatcher_{{.scheduler = {.max_ops = 16, .max_queues = 16}},
                         gpu_,
                         std::unique_ptr<policies::Policy>(first_),
                         control_,
                         issuer_,
                         records_};
};

TEST_F(ReplacementTest, TunedTimesReachThePolicyThatIsThereAndItStays) {
  Replacement replacement;
  replacement.tuned = std::make_shared<const TunedTable>();
  Tell(DispatcherMessage::Type::kUseTuned, replacement);
  EXPECT_EQ(first_->tuned(), replacement.tuned.get());
  EXPECT_FALSE(first_ended_) << "and with it what it has learned";
}

TEST_F(ReplacementTest, APolicyThatGivesWayComesBackToItsOwner) {
  Replacement replacement;
  replacement.policy = std::make_unique<WatchedPolicy>(second_ended_);
  Tell(DispatcherMessage::Type::kSetPolicy, replacement);
  EXPECT_EQ(replacement.policy.get(), first_);
  EXPECT_FALSE(first_ended_) << "the dispatcher's turn freed it";
}

}  // namespace
}  // namespace concert::daemon
