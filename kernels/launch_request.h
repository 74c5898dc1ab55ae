// One launch, from the scheduler's decision through the device seam to whoever launches kernels.
#ifndef CONCERT_KERNELS_LAUNCH_REQUEST_H_
#define CONCERT_KERNELS_LAUNCH_REQUEST_H_

#include <cstdint>
#include <span>

#include "kernels/group/plan/work_list.h"
#include "kernels/op.h"
#include "policies/seam/plan.h"
#include "policies/seam/variant.h"

namespace concert::kernels {

// A launch that was planned, its edges to earlier ones, and its operands. Points to what its maker
// keeps until the launch is made.
struct LaunchRequest {
  policies::PlannedLaunch planned;  // its first and count are for those who have the list
  std::span<const Op* const> ops;   // at least one
  // Empty, or one per op: performed when that op is done, even if others of the launch are not.
  std::span<const TimelineWrite> writes;

  // What it must be behind: bit i: all that is on lane i, by daemon::Device::Order before the
  // launch. Its own lane is not among them.
  uint16_t order_mask = 0;
  // What of it may start before earlier work on its own lane has ended. Nothing, unless the caller
  // knows better.
  //
  // Launches that take part in chains: empty, or per op the op before it in its queue, which
  // signals the same timeline with a value 1 less. At most kMaxGroupPredecessors launches back.
  std::span<const Predecessor> after;
  bool inputs_ready = false;   // but for `after`, nothing that the ops depend on is unfinished
  bool weights_ready = false;  // no unfinished op writes W of any of the ops

  // For who looks on: why this was planned, and the number of the plan.
  policies::Reason reason = policies::Reason::kNothingReady;
  uint64_t plan = 0;
  const policies::Variant* variant = nullptr;  // tuning: run the ops with this one

  const GroupWorkList* work_list() const { return GroupWorkList::Of(planned.work_list); }
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_LAUNCH_REQUEST_H_
