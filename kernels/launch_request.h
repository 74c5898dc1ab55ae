// One launch, in the same words from the scheduler's decision through the device seam to whoever
// launches kernels.
#ifndef CONCERT_KERNELS_LAUNCH_REQUEST_H_
#define CONCERT_KERNELS_LAUNCH_REQUEST_H_

#include <cstdint>
#include <span>

#include "kernels/group/plan/work_list.h"
#include "kernels/op.h"
#include "policies/seam/form.h"
#include "policies/seam/plan.h"
#include "policies/seam/variant.h"

namespace concert::kernels {

// Points to what its maker keeps until the launch is made.
struct LaunchRequest {
  std::span<const Op* const> ops;  // at least one
  policies::Form form = policies::Form::kSingle;
  // SMs the launch may use; 0: all. On lanes that are not of high priority group launches keep to
  // it together with those that they overlap, so that the rest is there for who is ahead of them.
  int sm_budget = 0;
  policies::CompanyClass company = policies::CompanyClass::kSolo;
  // kGroup: the work list, whose problem i is ops[i]. Without one, or without
  // DeviceModel::group_kernel, equal GEMMs are one launch where the device's library has a kernel
  // for that; otherwise the ops run one after the other.
  const GroupWorkList* work_list = nullptr;
  // Empty, or one per op: performed when that op is done, even if others of the launch are not.
  std::span<const TimelineWrite> writes;
  // What may start before earlier work on the lane has ended. Nothing, unless the caller knows
  // better.
  //
  // Launches that take part in chains: empty, or per op the op before it in its queue, which
  // signals the same timeline with a value 1 less. At most kMaxGroupPredecessors launches back.
  std::span<const Predecessor> after;
  bool inputs_ready = false;   // but for `after`, nothing that the ops depend on is unfinished
  bool weights_ready = false;  // no unfinished op writes W of any of the ops
  // For who looks on: the plan that it is of, and why that was made.
  uint64_t plan = 0;
  policies::Reason reason = policies::Reason::kNothingReady;
  const policies::Variant* variant = nullptr;  // tuning: run the ops with this one
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_LAUNCH_REQUEST_H_
