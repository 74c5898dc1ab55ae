// Which SMs a launch that starts now is to leave to collectives. Pure.
#ifndef CONCERT_POLICIES_AUTO_HELD_BY_COLLECTIVES_H_
#define CONCERT_POLICIES_AUTO_HELD_BY_COLLECTIVES_H_

#include "policies/seam/snapshot.h"

namespace concert::policies {

struct Held {
  int sms = 0;
  Time until = 0;     // when those are expected to end that run
  bool near = false;  // it is for one that is about to start
};

// By those that run, or by the one that wants most of those that go out now (`offered_sms`) or wait
// for ranks which are likely to come while a launch that starts now would run. Its blocks would
// wait for that launch to end, and with them those of the other GPUs.
Held HeldByCollectives(const Snapshot& snapshot, int offered_sms);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_HELD_BY_COLLECTIVES_H_
