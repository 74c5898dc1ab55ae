// Which SMs a launch that starts now is to leave to collectives. Pure.
#ifndef CONCERT_POLICIES_AUTO_HELD_BY_COLLECTIVES_H_
#define CONCERT_POLICIES_AUTO_HELD_BY_COLLECTIVES_H_

#include "policies/seam/snapshot.h"

namespace concert::policies {

// For how long SMs are left to a collective that waits for ranks, since the last one came. While
// one is missing: with 16 of 132 SMs left, 1 ms costs an eighth of itself, less than a launch of
// 0.2 ms costs on every GPU of the collective when it is in the way. While more are: a launch that
// starts now is over by then. So n ranks cost an eighth of 1 ms and n - 2 times 0.2 ms at most,
// however late they are.
inline constexpr Time kLastRankNs = 1'000'000;
inline constexpr Time kNextRankNs = 200'000;

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
