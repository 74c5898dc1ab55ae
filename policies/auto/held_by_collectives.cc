#include "policies/auto/held_by_collectives.h"

#include <algorithm>

namespace concert::policies {

Held HeldByCollectives(const Snapshot& snapshot, int offered_sms) {
  int near_sms = offered_sms;
  for (const WaitingCollective& collective : snapshot.waiting) {
    const bool last = collective.ranks_there + 1 >= collective.work.ranks;
    if (snapshot.now - collective.since >= (last ? kLastRankNs : kNextRankNs)) continue;
    near_sms = std::max<int>(near_sms, collective.sms);
  }
  Held held = {.sms = std::max(snapshot.reserved_sms, near_sms),
               .near = near_sms > snapshot.reserved_sms};
  for (const RunningOp& running : snapshot.running) {
    if (running.reserved_sms > 0) held.until = std::max(held.until, running.expected_end);
  }
  return held;
}

}  // namespace concert::policies
