// Plans group launches: a tile for every problem, which tiles are split along K, and which block
// computes what, in which order.
#ifndef CONCERT_POLICIES_GROUP_PLANNER_H_
#define CONCERT_POLICIES_GROUP_PLANNER_H_

#include <cstdint>
#include <memory>
#include <span>

#include "policies/group_cost.h"
#include "policies/group_schedule.h"
#include "policies/tuned_table.h"
#include "policies/work.h"

namespace concert::policies {

// Owns the schedules of launches planned lately, in fixed memory. Not thread-safe.
class GroupPlanner {
 public:
  explicit GroupPlanner(const DeviceModel& device);
  ~GroupPlanner();

  // Whether a group launch can carry this GEMM: batch 1, a dtype the kernel has, tiles and k within
  // what a GroupItem can name. Work::groupable says the same and knows the operands too.
  static bool Takes(const Problem& problem);

  // A schedule of `problems`, all of one dtype, on `blocks` SMs (0: all). The same problems in the
  // same order on as many blocks for the same goal give the same items, whether they are remembered
  // or planned anew.
  // Null if there is no room for its items (kMaxGroupItems). The result stays valid until
  // kGroupScheduleSlots - 1 more have been planned, or schedules with kGroupArenaItems less
  // kMaxGroupItems items (those of one schedule lie in a row).
  // Target: 20 us for 8 problems not seen before, 150 us for 64; a lookup for known ones.
  // REQUIRES: 1 to kMaxGroupProblems problems, all of which Takes() accepts.
  const GroupSchedule* Plan(std::span<const Problem> problems, int blocks,
                            GroupGoal goal = GroupGoal::kLatency);

  // About predicted_us of such a schedule without planning it, for comparing partitions: 0.2 us per
  // problem of a shape met lately. On random problems it is off by 1 % (64 of them), 2 % (8) or 3 %
  // (4) on average, and by 50 % at most: it searches less than Plan().
  float PredictUs(std::span<const Problem> problems, int blocks,
                  GroupGoal goal = GroupGoal::kLatency) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_GROUP_PLANNER_H_
