// What is in flight on one GPU: where each launched op is, what it writes, what each lane has and
// when that is predicted to end, and the books of plans (plan_book.h). Pure; fixed storage; not
// thread-safe.
#ifndef CONCERT_DAEMON_SCHED_LEDGER_H_
#define CONCERT_DAEMON_SCHED_LEDGER_H_

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "daemon/sched/coordinator.h"
#include "daemon/sched/hazards.h"
#include "daemon/sched/lane_clock.h"
#include "daemon/sched/op_pool.h"
#include "daemon/sched/plan_book.h"
#include "kernels/launch_request.h"
#include "policies/seam/plan.h"
#include "policies/seam/snapshot.h"

namespace concert::daemon {

// Owns OpSlot::flight of the ops in `pool`.
class Ledger {
 public:
  using Lane = policies::Lane;
  using Time = policies::Time;

  Ledger(const policies::DeviceModel& device, OpPool& pool);

  // --- Entries ---

  // A plan whose launches are being entered, and when they are predicted to start and end, beside
  // what runs already.
  struct OpenPlan {
    uint16_t plan;
    Time start = std::numeric_limits<Time>::max();
    Time end = 0;
    Time latency = 0;  // of the first launch, as far as no earlier work hides it
  };
  // REQUIRES: as PlanBook::OpenPlan.
  OpenPlan Open(const policies::Plan& plan, policies::Priority priority, Time now) {
    return {.plan = plans_.OpenPlan(plan, priority, now)};
  }
  // `ops` are enqueued as this launch. Fills in which plan it is of and, where that matters since
  // it is `chained`, weights_ready (hazards.h).
  void Launch(kernels::LaunchRequest& launch, std::span<const OpId> ops, bool chained,
              OpenPlan& plan, Time now);
  // All launches of the plan have been entered.
  void Close(const policies::Plan& plan, const OpenPlan& open);

  // A collective's part goes to the rendezvous, to be enqueued on `lane`: until it is, it takes
  // nothing that others need. `sms`: that it is likely to hold then.
  void Offer(OpId op, Lane lane, uint16_t sms, Time now);
  // News of an offered part: the parts of `ranks` ranks are there, the last since `since`.
  void RanksThere(OpId op, uint8_t ranks, Time since);
  // The rendezvous has given the part back.
  void TakeBack(OpId op) { Unlist(op); }
  void LaunchPart(OpId op, const Reservation& reservation, Time now);

  // The launched op has ended.
  void Finish(OpId op, Time now);
  // It will not end there: the device is gone.
  void Withdraw(OpId op);

  // --- Views ---

  PlanBook& plans() { return plans_; }
  const PlanBook& plans() const { return plans_; }

  policies::LaneState StateOf(Lane lane, Time now) const {
    return {.in_flight = lanes_[lane].in_flight, .busy_until = lanes_[lane].clock.BusyUntil(now)};
  }
  // Offered parts: those first offered, up to a bound.
  std::span<const policies::WaitingCollective> waiting() const { return waiting_; }
  // When the launched op's launch is predicted to end.
  Time EndOf(const OpSlot& slot, Time now) const {
    return lanes_[slot.flight.lane].clock.EndOf(slot.flight.clock_launch, now);
  }
  // Whether the launched op ends so late, or so uncertainly, that nobody may hold SMs for what
  // follows it.
  bool IsFar(const OpSlot& slot, Time now) const {
    return slot.flight.is_far || EndOf(slot, now) > now + kNearNs;
  }
  // The first time behind `after` at which a lane's running launch is predicted to end; the end of
  // time if there is none.
  Time NextEnd(Time after) const;
  struct Backlog {
    Time ns = 0;          // of predicted work
    Time running_ns = 0;  // predicted, of the longest launch that runs
  };
  // Of the lanes on which work may outrank this class or share its SMs, collectives' excepted.
  Backlog BacklogOf(policies::Priority priority, Time now) const;
  // The class's lanes on which nothing is in flight.
  int IdleLanes(policies::Priority priority) const;
  // The lane on which the next launch would follow the op with nothing in between: kNoLane if there
  // is none. Collective lanes are never shared with other work.
  Lane LaneBehind(OpId op) const;
  // Where in one of the last launches on `lane` the op is; nowhere if it is in none.
  kernels::Predecessor PredecessorOn(Lane lane, OpId op) const;

 private:
  // Ten times what it takes to bring ranks together: who follows is there in time.
  static constexpr Time kNearNs = 1'000'000;

  struct LaneInfo {
    uint32_t in_flight = 0;
    uint32_t far = 0;  // of them
    LaneClock clock;
    OpId last_op = kNone;
    uint64_t launches = 0;
  };

  void Enqueue(OpId op, std::span<const kernels::ByteRange> written);
  uint32_t Occupy(const kernels::LaunchRequest& launch, OpenPlan& plan, Time now);
  bool StartsFar(const kernels::LaunchRequest& launch) const;
  void LeaveLane(OpId op, Time now);
  void Unlist(OpId op);

  const policies::DeviceModel& device_;
  OpPool& pool_;
  std::array<LaneInfo, policies::kLaneCount> lanes_;
  WritesInFlight writes_;
  PlanBook plans_;
  std::vector<policies::WaitingCollective> waiting_;
  LaunchRanges ranges_;  // scratch of one launch
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_LEDGER_H_
