// Whose turn it is among sessions of a class, over more time than one decision.
#include <map>

#include "tests/unit/sched/scheduler_fixture.h"

namespace concert::daemon {
namespace {

class SchedulerFairnessTest : public SchedulerTest {
 protected:
  SchedulerFairnessTest() { flops_ = 1'000'000'000'000; }  // longer than a fairness quantum

  // Keeps `count` ops of each queue submitted until `launches` more have been launched, each of
  // which ends before the next decision. Returns how many there were of each queue.
  std::map<QueueId, int> Run(const std::vector<QueueId>& queues, int launches) {
    std::map<QueueId, int> launched;
    const size_t before = launched_.size();
    while (launched_.size() < before + static_cast<size_t>(launches)) {
      for (const QueueId queue : queues) KeepSubmitted(queue);
      for (const QueueId queue : LaunchAndEnd()) ++launched[queue];
    }
    return launched;
  }
  // Its queue is over and gone, as when a client destroys it.
  void Close(QueueId queue) {
    scheduler_.RemoveQueue(queue, true);
    while (!scheduler_.QueueEnded(queue)) LaunchAndEnd();
    scheduler_.ended_queues().clear();
    scheduler_.ReclaimQueue(queue);
    tickets_[queue] = finished_[queue] = 0;
  }

 private:
  // The queue of each op that a step launches.
  std::vector<QueueId> LaunchAndEnd() {
    std::vector<QueueId> queues;
    const size_t before = launched_.size();
    Step();
    for (size_t i = before; i < launched_.size(); ++i) {
      queues.push_back(queue_of_[launched_[i]]);
      Finish(queues.back(), ++finished_[queues.back()]);
    }
    return queues;
  }
  void KeepSubmitted(QueueId queue) {
    while (tickets_[queue] < finished_[queue] + 3) queue_of_[Submit(queue)] = queue;
  }
  std::map<OpId, QueueId> queue_of_;
  std::map<QueueId, uint64_t> finished_;
};

TEST_F(SchedulerFairnessTest, WhoHasSleptIsNotOwedAllThatTheOthersHad) {
  const QueueId sleeper = AddQueue(1), worker = AddQueue(2);
  Run({worker}, 1000);
  std::map<QueueId, int> launched = Run({sleeper, worker}, 20);
  EXPECT_GE(launched[worker], 8);
  EXPECT_GE(launched[sleeper], 8);
}

TEST_F(SchedulerFairnessTest, ANewcomerHasItsShareAtOnceAndNoMore) {
  const QueueId worker = AddQueue(1);
  AddQueue(2);  // of one that never does anything
  Run({worker}, 1000);
  const QueueId newcomer = AddQueue(3);
  std::map<QueueId, int> launched = Run({newcomer, worker}, 20);
  EXPECT_GE(launched[worker], 8);
  EXPECT_GE(launched[newcomer], 8);
}

TEST_F(SchedulerFairnessTest, ANewQueuePaysForWhatItsSessionHadThroughAnother) {
  const QueueId first = AddQueue(1);
  Run({first}, 10);
  Close(first);
  const QueueId renewed = AddQueue(1), newcomer = AddQueue(2);
  const OpId of_renewed = Submit(renewed), of_newcomer = Submit(newcomer);
  launched_.clear();
  Step();
  EXPECT_THAT(launched_, testing::ElementsAre(of_newcomer, of_renewed));
}

TEST_F(SchedulerFairnessTest, WhatASessionHadInAnotherClassIsNotHeldAgainstIt) {
  const QueueId of_night = AddQueue(1, Priority::kLow), of_day = AddQueue(1), other = AddQueue(2);
  Run({of_night}, 1000);
  std::map<QueueId, int> launched = Run({of_day, other}, 20);
  EXPECT_GE(launched[of_day], 8);
  EXPECT_GE(launched[other], 8);
}

}  // namespace
}  // namespace concert::daemon
