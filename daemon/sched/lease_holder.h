// The daemon's own work, such as measuring: done on the thread which alone may launch, a GPU's
// dispatcher or the collectives' issuer, and only while no client has anything to do there.
#ifndef CONCERT_DAEMON_SCHED_LEASE_HOLDER_H_
#define CONCERT_DAEMON_SCHED_LEASE_HOLDER_H_

#include "daemon/device/device.h"

namespace concert::daemon {

class LeaseHolder {
 public:
  virtual ~LeaseHolder() = default;

  // Called by the dispatcher, at the end of each of its turns, from DispatcherMessage::kLease until
  // it returns false; then the dispatcher has forgotten the lease_holder. While it lasts the
  // dispatcher does not sleep. A call takes at most a few milliseconds, and so does what it leaves
  // on the GPU, since that is what a client's op then waits for. `idle`: no op is unfinished and
  // none has been published. If not, nothing new may be started, and what is being measured is
  // worthless.
  virtual bool Turn(Device& device, bool idle) = 0;
};

// The same on the thread of the collectives' issuer. What it asks beyond: no part waits for ranks.
class CollectiveLeaseHolder {
 public:
  virtual ~CollectiveLeaseHolder() = default;

  // Called by the issuer at the end of each of its turns, from IssuerMessage::kLease until it
  // returns false; meanwhile the issuer does not sleep. As LeaseHolder::Turn otherwise; `idle`: no
  // part waits and none has come in this turn.
  virtual bool Turn(Node& node, bool idle) = 0;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_LEASE_HOLDER_H_
