// Whether other queues are at work on the GPU too, of whatever session, for whoever is: some things
// are better done in another way then.
#ifndef CONCERT_DAEMON_SCHED_COMPANY_H_
#define CONCERT_DAEMON_SCHED_COMPANY_H_

#include <cstdint>
#include <utility>

#include "policies/seam/snapshot.h"
#include "proto/ring/ring_abi.h"

namespace concert::daemon {

// Constant time and memory, however many queues there are. Not thread-safe.
class Company {
 public:
  using Time = policies::Time;

  // A queue to which nothing was submitted for so long is not at work: longer than the steps of a
  // server and what it does between them.
  static constexpr Time kIdleNs = 20'000'000;

  // An op of the queue, by its timeline's id, was admitted, which is a run of a program or could be
  // one, or neither. What others are at work with, as concert_company. `now` never falls.
  uint32_t Admitted(uint64_t queue, bool could_be_run, Time now) {
    any_.See(queue, now);
    if (!could_be_run) ops_.See(queue, now);
    uint32_t company = 0;
    if (any_.Beside(queue, now)) company |= CONCERT_COMPANY;
    if (ops_.Beside(queue, now)) company |= CONCERT_COMPANY_OF_OPS;
    return company;
  }

 private:
  struct Admission {
    uint64_t queue = 0;  // 0: none yet
    Time at = 0;
  };
  struct Latest {
    Admission last, other;  // of any queue; of another one than that

    void See(uint64_t queue, Time now) {
      if (queue != last.queue) other = std::exchange(last, {.queue = queue});
      last.at = now;
    }
    // Whether another queue than this was seen lately.
    bool Beside(uint64_t queue, Time now) const {
      const Admission& its = last.queue == queue ? other : last;
      return its.queue != 0 && now - its.at < kIdleNs;
    }
  };
  Latest any_, ops_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_COMPANY_H_
