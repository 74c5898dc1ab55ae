// Lends group schedules and knows how long a borrowed one stays valid, so that a remembered plan
// need not ask the planner again.
#ifndef CONCERT_POLICIES_SCHEDULE_LENDER_H_
#define CONCERT_POLICIES_SCHEDULE_LENDER_H_

#include <cstdint>
#include <span>

#include "policies/group_planner.h"

namespace concert::policies {

// Not thread-safe.
class ScheduleLender {
 public:
  explicit ScheduleLender(const DeviceModel& device) : planner_(device) {}

  // When a schedule was borrowed.
  struct Stamp {
    uint64_t schedules = 0, items = 0;
  };
  Stamp stamp() const { return lent_; }

  // As GroupPlanner::Plan.
  const GroupSchedule* Borrow(std::span<const Problem> problems, int blocks, GroupGoal goal) {
    const GroupSchedule* schedule = planner_.Plan(problems, blocks, goal);
    ++lent_.schedules;
    if (schedule != nullptr) lent_.items += schedule->item_count;
    return schedule;
  }

  // Whether what was borrowed at `stamp` may go into another plan. The planner keeps what it has
  // returned for at least kGroupScheduleSlots - 1 more schedules or kGroupArenaItems items. The
  // first quarter of that is for plans, the rest for launches that are in flight. Every loan counts
  // as a new schedule, so this errs to asking again.
  bool Valid(const Stamp& stamp) const {
    return lent_.schedules - stamp.schedules < kGroupScheduleSlots / 4 &&
           lent_.items - stamp.items < kGroupArenaItems / 4;
  }

  const GroupPlanner& planner() const { return planner_; }

 private:
  GroupPlanner planner_;
  Stamp lent_;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_SCHEDULE_LENDER_H_
