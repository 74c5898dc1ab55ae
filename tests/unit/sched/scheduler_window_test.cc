// What the scheduler shows a policy beside what is ready and what runs: the queues behind ready
// ops, and collectives that wait for ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "daemon/quota/account.h"
#include "tests/unit/sched/scheduler_fixture.h"

namespace concert::daemon {
namespace {

using policies::QueuedOp;
using policies::WaitingCollective;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

struct Seen {
  struct Queued {
    OpId op;
    bool waits_elsewhere;
    bool operator==(const Queued&) const = default;
  };
  std::vector<Queued> followers;  // of the first ready op
  std::vector<WaitingCollective> waiting;
};

// Keeps what the last decision saw.
class SeesWindow : public EachAlone {
 public:
  explicit SeesWindow(Seen& seen) : seen_(seen) {}
  void Decide(const Snapshot& snapshot, Plan& plan) override {
    seen_ = {};
    for (const QueuedOp& op : policies::FollowersOf(snapshot, snapshot.ready[0])) {
      seen_.followers.push_back({op.op, op.waits_elsewhere});
    }
    seen_.waiting.assign(snapshot.waiting.begin(), snapshot.waiting.end());
    EachAlone::Decide(snapshot, plan);
  }

 private:
  Seen& seen_;
};

class SchedulerWindowTest : public SchedulerTest {
 protected:
  SchedulerWindowTest() : SchedulerTest({.depth = 1, .backlog_ns = 0}) {
    std::unique_ptr<policies::Policy> policy = std::make_unique<SeesWindow>(seen_);
    scheduler_.SetPolicy(policy);
  }

  // Lets the policy look, with an op on a queue of its own.
  const Seen& Look() {
    const QueueId queue = AddQueue();
    Submit(queue);
    Step();
    Finish(queue, 1);
    Step();
    return seen_;
  }
  WaitingCollective WaitingOf(OpId part) {
    for (const WaitingCollective& collective : Look().waiting) {
      if (collective.op == part) return collective;
    }
    return {.op = kNone, .session = 0, .ranks_there = 0, .work = {}};
  }

  Seen seen_;
};

TEST_F(SchedulerWindowTest, FollowersComeInTheOrderOfTheirQueue) {
  const QueueId queue = AddQueue(), other = AddQueue();
  const OpId front = Submit(queue);
  Submit(other);
  const OpId second = Submit(queue), third = Submit(queue, {}, RunsOn::kLinks);
  Step();
  ASSERT_THAT(launched_, ElementsAre(front));  // depth 1: that is all that was decided
  EXPECT_THAT(seen_.followers,
              ElementsAre(Seen::Queued{second, false}, Seen::Queued{third, false}));
}

TEST_F(SchedulerWindowTest, ReachesSixtyFourOpsIntoAQueue) {
  const QueueId queue = AddQueue();
  for (int i = 0; i < 100; ++i) Submit(queue);
  Step();
  EXPECT_THAT(seen_.followers, SizeIs(64));
}

TEST_F(SchedulerWindowTest, SaysWhichFollowersWaitForMoreThanTheirQueue) {
  const QueueId queue = AddQueue(), other = AddQueue();
  const OpId runs = Submit(other);
  Step();
  ASSERT_THAT(launched_, ElementsAre(runs));
  Submit(queue);
  const OpId ended = Submit(queue, {{other, 1}}), absent = Submit(queue, {{other, 2}}),
             own = Submit(queue, {{queue, 1}}), watched = scheduler_.AllocateOp();
  OpSlot& slot = scheduler_.slot(watched);
  slot.op.ticket = ++tickets_[queue];
  slot.watched_waits = 1;
  scheduler_.Submit(watched, queue, now_);
  Finish(other, 1);
  Step();
  EXPECT_THAT(seen_.followers, ElementsAre(Seen::Queued{ended, false}, Seen::Queued{absent, true},
                                           Seen::Queued{own, false}, Seen::Queued{watched, true}));
}

TEST_F(SchedulerWindowTest, AWaitForWhatRunsElsewhereCountsUntilItHasEnded) {
  const QueueId queue = AddQueue(), high = AddQueue(2, Priority::kHigh);
  Submit(queue);
  Step();
  Submit(high);  // is decided while the other class runs
  const OpId waits = Submit(high, {{queue, 1}});
  Step();
  EXPECT_THAT(seen_.followers, ElementsAre(Seen::Queued{waits, true}));
}

TEST_F(SchedulerWindowTest, EndsAtAnOpThatHasFailed) {
  const QueueId queue = AddQueue();
  Submit(queue);
  const OpId second = Submit(queue);
  Submit(queue, {}, RunsOn::kSms, kernels::InvalidArgument(CONCERT_MESSAGE_OVERFLOW, 1));
  Submit(queue);
  Step();
  EXPECT_THAT(seen_.followers, ElementsAre(Seen::Queued{second, false}));
}

TEST_F(SchedulerWindowTest, ACollectiveWaitsFromItsOfferToItsLaunch) {
  now_ = 1'000;
  const OpId part = Submit(AddQueue(/*session=*/7), {}, RunsOn::kLinks);
  Step();
  now_ = 2'000;
  EXPECT_EQ(WaitingOf(part).session, 7u);
  EXPECT_EQ(WaitingOf(part).ranks_there, 1);
  EXPECT_EQ(WaitingOf(part).since, 1'000);
  EXPECT_EQ(WaitingOf(part).work, scheduler_.slot(part).op.work);
  scheduler_.RanksThere(part, 5, 3'000);
  EXPECT_EQ(WaitingOf(part).ranks_there, 5);
  EXPECT_EQ(WaitingOf(part).since, 3'000);
  scheduler_.PartLaunched(part, {}, now_);
  EXPECT_THAT(Look().waiting, IsEmpty());
}

TEST_F(SchedulerWindowTest, APartThatIsGivenBackWaitsNoMore) {
  const OpId first = Submit(AddQueue(), {}, RunsOn::kLinks),
             second = Submit(AddQueue(), {}, RunsOn::kLinks);
  Step();
  EXPECT_THAT(Look().waiting, SizeIs(2));
  scheduler_.PartFailed(first, {CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_RANK_LEFT, {}});
  EXPECT_EQ(WaitingOf(second).op, second);
  EXPECT_THAT(seen_.waiting, SizeIs(1));
  // The device was lost before the rendezvous was done with it.
  scheduler_.FailAll({CONCERT_ABI_INTERNAL, CONCERT_MESSAGE_DEVICE_LOST, {}});
  scheduler_.RanksThere(second, 3, now_);
  scheduler_.PartLaunched(second, {}, now_);
  EXPECT_THAT(Look().waiting, IsEmpty());
}

// All are launched or given back, and the list empties.
TEST_F(SchedulerWindowTest, ShowsABoundedNumberOfCollectives) {
  for (int i = 0; i < 300; ++i) Submit(AddQueue(), {}, RunsOn::kLinks);
  while (offered_.size() < 300) Step();
  const auto expect_shown = [this](size_t first, size_t end) {
    std::vector<OpId> shown;
    for (const WaitingCollective& collective : Look().waiting) shown.push_back(collective.op);
    const std::vector<OpId> expected(offered_.begin() + static_cast<ptrdiff_t>(first),
                                     offered_.begin() + static_cast<ptrdiff_t>(end));
    EXPECT_THAT(shown, testing::UnorderedElementsAreArray(expected));
  };
  const auto give_back = [this](size_t i) {
    scheduler_.PartFailed(offered_[i], {CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_RANK_LEFT, {}});
  };
  expect_shown(0, policies::kMaxReady);
  for (size_t i = 0; i < 100; ++i) scheduler_.PartLaunched(offered_[i], {}, now_);
  expect_shown(100, policies::kMaxReady);
  for (size_t i = 200; i < 299; ++i) give_back(i);
  expect_shown(100, 200);
  const OpId unseen = offered_[299];
  EXPECT_EQ(WaitingOf(unseen).op, kNone);
  scheduler_.RanksThere(unseen, 2, now_);
  EXPECT_EQ(WaitingOf(unseen).ranks_there, 2) << "there is room when news come";
  for (size_t i = 100; i < 200; ++i) give_back(i);
  expect_shown(299, 300);
  give_back(299);
  EXPECT_THAT(Look().waiting, IsEmpty());
}

}  // namespace
}  // namespace concert::daemon
