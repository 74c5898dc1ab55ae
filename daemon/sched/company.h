// Whether other queues are at work on the GPU too, of whatever session, for whoever is: some things
// are better done in another way then.
#ifndef CONCERT_DAEMON_SCHED_COMPANY_H_
#define CONCERT_DAEMON_SCHED_COMPANY_H_

#include <cstdint>
#include <utility>

#include "policies/seam/snapshot.h"

namespace concert::daemon {

// Constant time and memory, however many queues there are. Not thread-safe.
class Company {
 public:
  using Time = policies::Time;

  // A queue to which nothing was submitted for so long is not at work: longer than the steps of a
  // server and what it does between them.
  static constexpr Time kIdleNs = 20'000'000;

  // An op of the queue, by its timeline's id, was admitted. Whether others are at work, too. `now`
  // never falls.
  bool Admitted(uint64_t queue, Time now) {
    if (queue != last_.queue) other_ = std::exchange(last_, {.queue = queue});
    last_.at = now;
    return other_.queue != 0 && now - other_.at < kIdleNs;
  }

 private:
  struct Admission {
    uint64_t queue = 0;  // 0: none yet
    Time at = 0;
  };
  Admission last_, other_;  // of any queue; of another one than that
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_COMPANY_H_
