// Parts of collectives: offered, launched, stalled and failed.
#include <algorithm>
#include <memory>

#include "tests/unit/sched/scheduler_fixture.h"

namespace concert::daemon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

TEST_F(SchedulerTest, FollowersOfAnOfferedPartWaitForItsLaunchOnly) {
  const QueueId queue = AddQueue();
  const OpId part = Submit(queue, {}, RunsOn::kLinks);
  const OpId after = Submit(queue);
  Step();
  EXPECT_THAT(offered_, ElementsAre(part));
  EXPECT_THAT(launched_, IsEmpty());
  scheduler_.PartLaunched(part, {}, now_);
  Step();
  EXPECT_THAT(launched_, ElementsAre(after));
  EXPECT_EQ(order_mask_[after], 1u << policies::kCollectiveLane);
}

class PartBehindTest : public SchedulerTest {
 protected:
  // Launches all that is ready and is predicted to take `us_`.
  class Takes : public EachAlone {
   public:
    explicit Takes(const float& us) : us_(us) {}
    void Decide(const Snapshot& snapshot, Plan& plan) override {
      EachAlone::Decide(snapshot, plan);
      plan.launches[0].predicted_us = plan.predicted_us = us_;
    }

   private:
    const float& us_;
  };
  PartBehindTest() {
    std::unique_ptr<policies::Policy> policy = std::make_unique<Takes>(us_);
    scheduler_.SetPolicy(policy);
  }
  OpId SubmitPart(QueueId queue, std::vector<OpSlot::LocalWait> waits = {}) {
    return Submit(queue, std::move(waits), RunsOn::kLinks);
  }

  float us_ = 10;
};

TEST_F(PartBehindTest, IsOfferedAtOnceIfThatEndsSoon) {
  const QueueId queue = AddQueue();
  us_ = 900;
  Submit(queue);
  const OpId part = SubmitPart(queue);
  Step();
  Step();
  EXPECT_THAT(offered_, ElementsAre(part));
}

TEST_F(PartBehindTest, IsOfferedWhenALongOpIsAboutToEnd) {
  const QueueId queue = AddQueue(), other = AddQueue();
  us_ = 50'000;
  Submit(queue);
  const OpId part = SubmitPart(queue), waits = SubmitPart(other, {{queue, 1}});
  Step();
  Step();
  EXPECT_THAT(offered_, IsEmpty());
  EXPECT_TRUE(scheduler_.parts_held_back());
  now_ += 48'000'000;
  Step();
  EXPECT_THAT(offered_, IsEmpty());
  now_ += 1'500'000;
  Step();
  EXPECT_THAT(offered_, UnorderedElementsAre(part, waits));
  EXPECT_FALSE(scheduler_.parts_held_back());
}

// Predictions of it may be off by seconds, which is how long peers would spin.
TEST_F(PartBehindTest, IsOfferedWhenAVeryLongOpHasEnded) {
  const QueueId queue = AddQueue(), other = AddQueue();
  us_ = 1'000'000;
  Submit(queue);
  Step();
  us_ = 10;
  Submit(other, {{queue, 1}});  // a short one in between
  const OpId part = SubmitPart(other);
  now_ += 5'000'000'000;
  for (int i = 0; i < 10; ++i) Step();
  EXPECT_EQ(launched_.size(), 2u);
  EXPECT_THAT(offered_, IsEmpty());
  Finish(queue, 1);
  Finish(other, 1);
  Step();
  EXPECT_THAT(offered_, ElementsAre(part));
}

TEST_F(PartBehindTest, FailsInItsTurnWhileItIsHeldBack) {
  const QueueId queue = AddQueue();
  us_ = 1'000'000;
  Submit(queue);
  const OpId part = SubmitPart(queue);
  Step();
  Step();
  scheduler_.RemoveQueue(queue, true);
  Step();
  EXPECT_FALSE(scheduler_.parts_held_back());
  Finish(queue, 1);
  Step();
  EXPECT_THAT(completed_, ElementsAre(part));
  EXPECT_TRUE(scheduler_.QueueEnded(queue));
}

TEST_F(SchedulerTest, AnOfferedPartDoesNotUseUpTheDepth) {
  const QueueId collectives = AddQueue(), gemms = AddQueue();
  Submit(collectives, {}, RunsOn::kLinks);
  Submit(gemms);
  Submit(gemms);
  Step();
  EXPECT_EQ(offered_.size(), 1u);
  EXPECT_EQ(launched_.size(), 2u);
}

TEST_F(SchedulerTest, CollectivesAreOfferedEvenAtFullDepth) {
  const QueueId gemms = AddQueue(), collectives = AddQueue();
  for (int i = 0; i < 4; ++i) Submit(gemms);
  Step();
  ASSERT_EQ(launched_.size(), 2u);
  Submit(collectives, {}, RunsOn::kLinks);
  Step();
  EXPECT_EQ(offered_.size(), 1u);
}

TEST_F(SchedulerTest, AFailedPartCompletesInOrder) {
  const QueueId queue = AddQueue();
  const OpId gemm = Submit(queue);
  const OpId part = Submit(queue, {}, RunsOn::kLinks);
  const OpId after = Submit(queue);
  Step();
  ASSERT_THAT(offered_, ElementsAre(part));
  scheduler_.PartFailed(
      part, {CONCERT_ABI_DEADLINE_EXCEEDED, CONCERT_MESSAGE_RANK_MISSING, {1, 1, 0, 5}});
  Step();
  EXPECT_THAT(completed_, IsEmpty());  // the GEMM before it still runs
  Finish(queue, 1);
  Step();
  EXPECT_THAT(completed_, ElementsAre(part));
  EXPECT_THAT(launched_, ElementsAre(gemm, after));
}

// Offers all that is ready at once.
class AllCollectives : public policies::Policy {
 public:
  void Decide(const Snapshot& snapshot, Plan& plan) override {
    plan.Clear();
    for (size_t i = 0; i < snapshot.ready.size() && !plan.full(); ++i) {
      plan.AddSingle(static_cast<uint16_t>(i), Form::kSingle, policies::kCollectiveLane, 10);
    }
  }
};

class PartsTest : public SchedulerTest {
 protected:
  static constexpr uint64_t kQuota = 20;
  static Limits QuotaOfParts() {
    Limits limits;
    limits[Resource::kParts].per_user = kQuota;
    return limits;
  }
  PartsTest() {
    std::unique_ptr<policies::Policy> all = std::make_unique<AllCollectives>();
    scheduler_.SetPolicy(all);
  }
  void SubmitParts(uint32_t session, Account& account, int count) {
    for (int i = 0; i < count; ++i) {
      const QueueId queue = scheduler_.AddQueue(session, Priority::kNormal, &account);
      session_of_[queue] = session;
      Submit(queue, {}, RunsOn::kLinks);
    }
  }
  size_t OfferedBy(uint32_t session) const {
    return static_cast<size_t>(std::count_if(offered_.begin(), offered_.end(), [&](OpId op) {
      return scheduler_.slot(op).op.session == session;
    }));
  }

  Accounts accounts_{QuotaOfParts()};
};

TEST_F(PartsTest, PartsBeyondAUsersQuotaWaitAndThoseOfOthersDoNot) {
  SubmitParts(1, accounts_.Of(1), 3 * kQuota);
  SubmitParts(2, accounts_.Of(2), 3);
  Step();
  EXPECT_EQ(OfferedBy(1), kQuota);
  EXPECT_EQ(OfferedBy(2), 3u);
  EXPECT_EQ(accounts_.Of(1).own().of(Resource::kParts), kQuota);
  // Each that is launched or given back makes room for one.
  scheduler_.PartFailed(offered_[0], {CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_RANK_LEFT, {}});
  scheduler_.PartLaunched(offered_[1], {}, now_);
  Step();
  Step();
  EXPECT_EQ(OfferedBy(1), kQuota + 2);
  EXPECT_EQ(accounts_.Of(1).own().of(Resource::kParts), kQuota);
}

TEST_F(PartsTest, APartThatIsStalledFailsWithItsQueue) {
  SubmitParts(1, accounts_.Of(1), kQuota + 1);
  Step();
  ASSERT_TRUE(scheduler_.parts_stalled());
  scheduler_.FailQueued({CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_DRAIN_TIMEOUT, {1}});
  Step();
  EXPECT_FALSE(scheduler_.parts_stalled());
  EXPECT_EQ(completed_.size(), 1u);
  for (const OpId part : offered_) {
    scheduler_.PartFailed(part, {CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_RANK_LEFT, {}});
  }
  Step();
  EXPECT_TRUE(scheduler_.idle());
  EXPECT_EQ(accounts_.Of(1).own().of(Resource::kParts), 0u);
}

// What waits for its peers uses nothing that others need: lanes, plans, tracked writes, timelines.
TEST_F(PartsTest, OfferedPartsAreInNoBooks) {
  for (int i = 0; i < 2'000; ++i) Submit(AddQueue(), {}, RunsOn::kLinks);
  for (int i = 0; i < 40; ++i) Step();
  EXPECT_EQ(offered_.size(), 2'000u);
  EXPECT_TRUE(scheduler_.active_queues().empty());
  // More than the books hold are launched; all end.
  for (const OpId part : offered_) scheduler_.PartLaunched(part, {}, now_);
  EXPECT_EQ(scheduler_.active_queues().size(), 2'000u);
  for (const auto& [queue, ticket] : tickets_) Finish(queue, ticket);
  for (int i = 0; i < 40; ++i) Step();
  EXPECT_TRUE(scheduler_.idle());
  EXPECT_EQ(scheduler_.op_records().size(), 2'000u);
}

}  // namespace
}  // namespace concert::daemon
