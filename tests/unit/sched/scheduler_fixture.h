// The scheduler as a pure step: events in, actions out, no threads and no device.
#ifndef CONCERT_TESTS_UNIT_SCHED_SCHEDULER_FIXTURE_H_
#define CONCERT_TESTS_UNIT_SCHED_SCHEDULER_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "daemon/sched/scheduler.h"

namespace concert::daemon {

using kernels::Failure;
using kernels::LaunchRequest;
using policies::Form;
using policies::Plan;
using policies::Priority;
using policies::RunsOn;
using policies::Snapshot;

// Launches every ready op as a plan of its own: GEMMs behind their predecessor or on alternating
// lanes.
class EachAlone : public policies::Policy {
 public:
  void Decide(const Snapshot& snapshot, Plan& plan) override {
    plan.Clear();
    const policies::ReadyOp& op = snapshot.ready[0];
    Lane lane = policies::kCollectiveLane;
    if (op.work.runs_on != RunsOn::kLinks) {
      lane = op.after != policies::kNoLane ? op.after : static_cast<Lane>(next_++ % 2);
    }
    plan.AddSingle(0, Form::kSingle, lane, 10);
    plan.predicted_us = plan.serial_us = 10;
  }

 private:
  int next_ = 0;
};

class SchedulerTest : public testing::Test {
 protected:
  explicit SchedulerTest(SchedulerOptions options = {.depth = 2,
                                                     .backlog_ns = 0,
                                                     .wait_timeout_ns = 1'000'000'000})
      : scheduler_(options, policies::DeviceModel{}, std::make_unique<EachAlone>()) {}

  QueueId AddQueue(uint32_t session = 1, Priority priority = Priority::kNormal) {
    const QueueId queue = scheduler_.AddQueue(session, priority);
    session_of_[queue] = session;
    return queue;
  }

  OpId Submit(QueueId queue, std::vector<OpSlot::LocalWait> waits = {},
              RunsOn runs_on = RunsOn::kSms, Failure failure = {}) {
    const OpId id = scheduler_.AllocateOp();
    OpSlot& slot = scheduler_.slot(id);
    slot.op.session = session_of_[queue];
    slot.op.covered = covered_;
    slot.op.ticket = tickets_[queue] += 1 + covered_;
    slot.op.work = {.runs_on = runs_on,
                    .m = 64,
                    .n = 64,
                    .k = 64,
                    .batch = 1,
                    .steps = steps_,
                    .flops = flops_,
                    .hbm_bytes = 1000};
    for (const OpSlot::LocalWait& wait : waits) {
      slot.op.waits.push_back(
          {CONCERT_TIMELINE_ID(session_of_[wait.queue], wait.queue), wait.value});
      slot.local_waits.push_back(wait);
    }
    slot.failure = failure;
    scheduler_.Submit(id, queue, now_);
    return id;
  }

  // Steps and files the actions.
  void Step() {
    actions_.Clear();
    scheduler_.Step(now_, actions_);
    for (const OpId op : actions_.completed) {
      completed_.push_back(op);
      failure_[op] = scheduler_.slot(op).failure;
    }
    for (const LaunchRequest& launch : actions_.launches) File(launch);
    for (const OpId op : actions_.released) {
      released_.push_back(op);
      scheduler_.FreeOp(op);
    }
  }

  void Finish(QueueId queue, uint64_t ticket) { scheduler_.TimelineSeen(queue, ticket, now_); }

  void File(const LaunchRequest& launch) {
    const bool offered = policies::IsCollectiveLane(launch.planned.lane);
    for (size_t i = 0; i < launch.planned.count; ++i) {
      const OpId op = actions_.OpsOf(launch)[i];
      (offered ? offered_ : launched_).push_back(op);
      order_mask_[op] = launch.order_mask;
      if (offered) continue;
      after_[op] = actions_.AfterOf(launch)[i];
      lane_[op] = launch.planned.lane;
      launch_of_.insert_or_assign(op, launch);
    }
  }

  Scheduler scheduler_;
  Time now_ = 1;
  uint64_t flops_ = 1000;  // of the next op
  uint32_t covered_ = 0;   // tickets, by the next op
  uint32_t steps_ = 1;     // of the next op: more than 1 are a program's
  Actions actions_;
  std::map<QueueId, uint32_t> session_of_;
  std::map<QueueId, uint64_t> tickets_;
  std::vector<OpId> launched_, offered_, completed_, released_;
  std::map<OpId, uint16_t> order_mask_;
  std::map<OpId, kernels::Predecessor> after_;
  std::map<OpId, Lane> lane_;
  std::map<OpId, LaunchRequest> launch_of_;
  std::map<OpId, Failure> failure_;
};

}  // namespace concert::daemon

#endif  // CONCERT_TESTS_UNIT_SCHED_SCHEDULER_FIXTURE_H_
