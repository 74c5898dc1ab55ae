// A seeded random walk over every event, checked against what must always hold: each queue's ops
// end in ticket order and exactly once, an op is never launched before what it waits for, it is
// ordered behind exactly the lanes of what it depends on and is unfinished, and everything drains.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "tests/support/seed.h"
#include "tests/unit/sched/scheduler_fixture.h"

namespace concert::daemon {
namespace {

using Where = std::pair<QueueId, uint64_t>;  // queue and ticket

class SchedulerWalkTest : public SchedulerTest {
 protected:
  struct Submitted {
    Where where;
    std::vector<OpSlot::LocalWait> waits;
    RunsOn runs_on;
  };

  uint32_t Pick(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  void SubmitOne() {
    const QueueId queue = queues_[Pick(kQueues)];
    std::vector<OpSlot::LocalWait> waits;
    for (uint32_t i = Pick(3); i > 0; --i) {
      const QueueId other = queues_[Pick(kQueues)];
      // Only on what is submitted already, so that no cycle of waits can form.
      if (other == queue || tickets_[other] == 0) continue;
      waits.push_back({other, 1 + Pick(static_cast<uint32_t>(tickets_[other])),
                       static_cast<uint8_t>(waits.size())});
    }
    const Failure failure =
        Pick(10) == 0 ? kernels::InvalidArgument(CONCERT_MESSAGE_OVERFLOW, 1) : Failure{};
    const RunsOn runs_on = Pick(5) == 0 ? RunsOn::kLinks : RunsOn::kSms;
    const OpId id = Submit(queue, waits, runs_on, failure);
    ops_[id] = {{queue, tickets_[queue]}, waits, runs_on};
    outstanding_[queue].push_back(tickets_[queue]);
    waits_submitted_ += waits.size();
  }

  // Where an op's launch must be ordered, and that it may be launched at all.
  void CheckOrder(OpId id) {
    const Submitted& op = ops_[id];
    const auto [queue, ticket] = op.where;
    uint16_t lanes = 0;
    const auto depend = [&](QueueId other, uint64_t value) {
      const auto launched = launched_on_.find({other, value});
      if (launched == launched_on_.end()) {
        ASSERT_LE(value, ended_[other]) << "launched before ticket " << value << " of " << other;
      } else if (value > ended_[other]) {
        lanes |= static_cast<uint16_t>(1u << launched->second);
      }
    };
    for (const OpSlot::LocalWait& wait : op.waits) depend(wait.queue, wait.value);
    if (ticket > 1) depend(queue, ticket - 1);
    const bool collective = op.runs_on == RunsOn::kLinks;
    const Lane lane = collective ? policies::kCollectiveLane : lane_[id];
    ASSERT_EQ(order_mask_[id], lanes & ~(1u << lane)) << "op " << ticket << " of queue " << queue;
    if (!collective) {
      ASSERT_EQ(launch_of_[id].inputs_ready, lanes == 0);
    }
    orders_checked_ += lanes != 0;
  }

  void StepAndCheck() {
    now_ += 1000;
    launched_.clear();
    offered_.clear();
    completed_.clear();
    released_.clear();
    Step();
    // What failed has ended for whoever waits for it.
    for (const OpId id : completed_) ended_[ops_[id].where.first] = ops_[id].where.second;
    for (const OpId id : launched_) {
      CheckOrder(id);
      launched_on_[ops_[id].where] = lane_[id];
      ASSERT_GT(ops_[id].where.second, newest_[ops_[id].where.first]);
      newest_[ops_[id].where.first] = ops_[id].where.second;
    }
    for (const OpId id : offered_) {
      CheckOrder(id);
      waiting_parts_.push_back(id);
    }
    for (const OpId id : released_) {
      const auto [queue, ticket] = ops_[id].where;
      ASSERT_EQ(outstanding_[queue].front(), ticket) << "out of order in queue " << queue;
      outstanding_[queue].pop_front();
    }
  }

  void FinishSome(QueueId queue) {
    uint64_t value = newest_[queue];
    if (Pick(2) == 0 && value > ended_[queue]) {
      value = ended_[queue] + 1 + Pick(static_cast<uint32_t>(value - ended_[queue]));
    }
    Finish(queue, value);
    ended_[queue] = std::max(ended_[queue], value);
  }

  void SettlePart(bool fail) {
    if (waiting_parts_.empty()) return;
    const size_t index = Pick(static_cast<uint32_t>(waiting_parts_.size()));
    const OpId id = waiting_parts_[index];
    waiting_parts_.erase(waiting_parts_.begin() + static_cast<ptrdiff_t>(index));
    if (fail) {
      scheduler_.PartFailed(id, {CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_RANK_LEFT, {}});
      return;
    }
    scheduler_.PartLaunched(id, {}, now_);
    launched_on_[ops_[id].where] = policies::kCollectiveLane;
    newest_[ops_[id].where.first] = ops_[id].where.second;
  }

  static constexpr uint32_t kQueues = 6;
  std::mt19937 random_;
  std::vector<QueueId> queues_;
  std::map<OpId, Submitted> ops_;
  std::map<Where, Lane> launched_on_;
  std::map<QueueId, uint64_t> newest_, ended_;  // tickets launched, and seen or completed
  std::map<QueueId, std::deque<uint64_t>> outstanding_;
  std::vector<OpId> waiting_parts_;
  size_t waits_submitted_ = 0, orders_checked_ = 0;
};

TEST_F(SchedulerWalkTest, RandomWalkKeepsTheInvariants) {
  const uint32_t seed = test::Seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  random_.seed(seed);
  for (uint32_t i = 0; i < kQueues; ++i) {
    queues_.push_back(AddQueue(1 + i % 3, static_cast<Priority>(static_cast<int>(Pick(3)) - 1)));
  }
  for (int i = 0; i < 20'000; ++i) {
    switch (Pick(4)) {
      case 0:
        SubmitOne();
        break;
      case 1:
        FinishSome(queues_[Pick(kQueues)]);
        break;
      case 2:
        SettlePart(Pick(4) == 0);
        break;
      default:
        StepAndCheck();
        if (HasFatalFailure()) return;
    }
  }
  for (int i = 0; i < 50'000 && !scheduler_.idle(); ++i) {
    SettlePart(false);
    for (const QueueId queue : queues_) FinishSome(queue);
    StepAndCheck();
    if (HasFatalFailure()) return;
  }
  EXPECT_TRUE(scheduler_.idle());
  EXPECT_EQ(scheduler_.plans_in_flight(), 0);
  EXPECT_GT(waits_submitted_, 1'000u);
  EXPECT_GT(orders_checked_, 500u);
}

}  // namespace
}  // namespace concert::daemon
