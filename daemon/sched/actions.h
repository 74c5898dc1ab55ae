// What the scheduler of one GPU wants done: the output of Scheduler::Step.
#ifndef CONCERT_DAEMON_SCHED_ACTIONS_H_
#define CONCERT_DAEMON_SCHED_ACTIONS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/quota/budget.h"
#include "daemon/sched/op_pool.h"
#include "kernels/launch_request.h"
#include "policies/seam/snapshot.h"

namespace concert::daemon {

// To be carried out list by list: an op that failed completes before the next of its queue is
// launched, so that whoever sees that end knows of the failure before it. Fixed storage.
struct Actions {
  // Launched or offered in one step: a few of the largest plans.
  static constexpr size_t kMaxLaunched = 4 * policies::kMaxReady;

  // Publish their failures, if they have one, and store their tickets to their timelines.
  std::vector<OpId> completed;

  // Plans' launches in their order, all but ops, writes and after. What is ready is so by what the
  // dispatcher has seen finished; weights_ready is found out for what takes part in chains only. On
  // a lane of collectives: give the op, a collective's part, to the rendezvous.
  std::vector<kernels::LaunchRequest> launches;
  std::vector<OpId> ops;                    // theirs: PlannedLaunch::first counts here
  std::vector<kernels::Predecessor> after;  // by op: LaunchRequest::after

  // Ended: drop what they hold (buffers, completion slots), then free their slots.
  std::vector<OpId> released;

  Actions() {
    completed.reserve(PerTurn(Work::kFailures));
    launches.reserve(kMaxLaunched);
    ops.reserve(kMaxLaunched);
    after.reserve(kMaxLaunched);
    released.reserve(PerTurn(Work::kFailures) + PerTurn(Work::kReleases));
  }
  void Clear() {
    completed.clear();
    launches.clear();
    ops.clear();
    after.clear();
    released.clear();
  }
  bool empty() const { return completed.empty() && launches.empty() && released.empty(); }
  // Whether the largest plan fits.
  bool HasRoom() const { return ops.size() + policies::kMaxReady <= kMaxLaunched; }

  // Adds a launch without its ops, which AddOp then adds one by one.
  kernels::LaunchRequest& AddLaunch(const policies::PlannedLaunch& planned) {
    kernels::LaunchRequest& launch = launches.emplace_back();
    launch.planned = planned;
    launch.planned.first = static_cast<uint16_t>(ops.size());
    return launch;
  }
  void AddOp(OpId op, kernels::Predecessor op_after = {}) {
    ops.push_back(op);
    after.push_back(op_after);
  }
  std::span<const OpId> OpsOf(const kernels::LaunchRequest& launch) const {
    return {ops.data() + launch.planned.first, launch.planned.count};
  }
  std::span<const kernels::Predecessor> AfterOf(const kernels::LaunchRequest& launch) const {
    return {after.data() + launch.planned.first, launch.planned.count};
  }
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_ACTIONS_H_
