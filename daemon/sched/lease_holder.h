// The daemon's own work on a GPU, such as measuring kernels: done on the dispatcher's thread, which
// alone may launch, and only while no client has anything to do there.
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

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_LEASE_HOLDER_H_
