// Carries out what the scheduler of one GPU decided: orders lanes, launches and signals on the
// device, hands parts of collectives to the issuer. Knows ops only by what they hand it: whose they
// are is the dispatcher's business. Dispatcher thread; allocates nothing.
#ifndef CONCERT_DAEMON_SCHED_EXECUTOR_H_
#define CONCERT_DAEMON_SCHED_EXECUTOR_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "daemon/device/device.h"
#include "daemon/sched/messages.h"
#include "kernels/inline_list.h"
#include "policies/seam/snapshot.h"

namespace concert::daemon {

class Executor {
 public:
  // Both outlive it.
  Executor(Device& device, IssuerMailbox& issuer);

  // --- A launch: Begin, Add for each of its ops, Launch ---

  void Begin();
  // `end`: the write that says that the op has ended.
  void Add(const Op& op, const TimelineWrite& end);
  // On its lane, behind those of its order_mask. Fills in its ops and writes. On an error nothing
  // of it was started and no op will end: tell whoever waits for them, then Signal.
  absl::Status Launch(LaunchRequest& launch);
  // Ends the ops of the launch that failed, behind all that `lane` has. On an error the device is
  // gone.
  absl::Status Signal(Lane lane) { return device_.Signal(lane, ends_.span()); }

  // --- A part of a collective, to its rendezvous ---

  // The part's lane goes behind those of `order_mask`. On an error the part was not offered.
  absl::Status Offer(const Membership& membership, const RankPart& part, uint16_t order_mask);
  // The other ranks must not wait for a part that will never come. One that the mailbox has no room
  // for costs them only their timeout.
  void Refuse(const Membership& membership, uint64_t sequence);

 private:
  absl::Status Order(Lane lane, uint16_t order_mask);

  Device& device_;
  IssuerMailbox& issuer_;
  // Of the launch that was begun.
  kernels::InlineList<const Op*, policies::kMaxReady> ops_;
  kernels::InlineList<TimelineWrite, policies::kMaxReady> ends_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_EXECUTOR_H_
