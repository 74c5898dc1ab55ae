// What a policy decided: launches, each of one or more ready ops, on named lanes.
#ifndef CONCERT_POLICIES_SEAM_PLAN_H_
#define CONCERT_POLICIES_SEAM_PLAN_H_

#include <array>
#include <cstdint>
#include <span>

#include "policies/seam/form.h"
#include "policies/seam/lanes.h"
#include "policies/seam/snapshot.h"
#include "policies/seam/variant.h"
#include "policies/seam/work_list.h"

namespace concert::policies {

// Why this plan. Shown in words by the admin API (ReasonText).
enum class Reason : uint8_t {
  kNothingReady,
  kHeldBack,  // something is ready, but the policy waits for what runs
  kOnlyOneReady,
  kPolicyOrder,        // the policy never chooses (serial, streams)
  kPriorityFirst,      // a higher class goes alone before the rest
  kTogetherFaster,     // predicted: together is faster than one after the other
  kTogetherNotFaster,  // do-no-harm: together was predicted slower
  kCollective,         // a collective goes out at once
};
inline constexpr int kReasonCount = 8;

// A step of a plan: what a policy says about one launch. Whoever carries it out holds it as it is.
struct PlannedLaunch {
  uint16_t first = 0;  // ops [first, first + count) of the list that goes with it: Plan::ops
  uint16_t count = 0;
  Form form = Form::kSingle;
  Lane lane = 0;
  // SMs the launch may use; 0: all. On lanes that are not of high priority group launches keep to
  // it together with those that they overlap, so that the rest is there for who is ahead of them.
  int sm_budget = 0;
  // Beside how many others the op's kernel should be at its best (its GO-variant).
  Degree degree = Degree::kSolo;
  // kGroup: the work list, whose problem i is the launch's i-th op. It stays as it is until
  // Policy::Reclaim(). Without one, or without DeviceModel::group_kernel, equal GEMMs are one
  // launch where the device's library has a kernel for that; otherwise the ops run one after the
  // other.
  const WorkList* work_list = nullptr;
  float predicted_us = 0;  // from its start to its end, beside the others of this plan
};

// Holds up to kMaxReady ops in fixed storage. Reused from decision to decision; Clear() is cheap.
struct Plan {
  static constexpr int kMaxLaunches = 64;

  std::array<uint16_t, kMaxReady> ops;  // indices into Snapshot::ready, each at most once
  std::array<PlannedLaunch, kMaxLaunches> launches;
  uint16_t op_count = 0;
  uint16_t launch_count = 0;
  Reason reason = Reason::kNothingReady;
  // Of the plan's compute; collectives start when their ranks are there and have plans of their
  // own.
  float predicted_us = 0;  // from the first start to the last end
  float serial_us = 0;     // the same ops one after the other with their best solo kernels
  uint64_t tag = 0;        // the policy's name for it, given back in Outcome; 0: no outcome

  void Clear() {
    op_count = launch_count = 0;
    reason = Reason::kNothingReady;
    predicted_us = serial_us = 0;
    tag = 0;
  }
  bool empty() const { return launch_count == 0; }
  bool full() const { return launch_count == kMaxLaunches || op_count == kMaxReady; }
  std::span<const PlannedLaunch> launch_span() const { return {launches.data(), launch_count}; }
  std::span<const uint16_t> OpsOf(const PlannedLaunch& launch) const {
    return {ops.data() + launch.first, launch.count};
  }
  // Adds a launch of one op. REQUIRES: !full().
  PlannedLaunch& AddSingle(uint16_t ready_index, Form form, Lane lane, float predicted_us_of_op) {
    PlannedLaunch& launch = launches[launch_count++];
    launch = {.first = op_count,
              .count = 1,
              .form = form,
              .lane = lane,
              .predicted_us = predicted_us_of_op};
    ops[op_count++] = ready_index;
    return launch;
  }
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_SEAM_PLAN_H_
