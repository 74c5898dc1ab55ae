// Whether other queues are at work on the GPU too, of whatever session, for whoever is: some things
// are better done in another way then.
#ifndef CONCERT_DAEMON_SCHED_COMPANY_H_
#define CONCERT_DAEMON_SCHED_COMPANY_H_

#include <cstdint>
#include <utility>

#include "policies/seam/snapshot.h"
#include "proto/ring/ring_abi.h"

namespace concert::daemon {

// Which queues had ops lately, by their timelines' ids: enough to know of each whether another had.
// Constant time and memory, however many there are. Not thread-safe.
class LatestQueues {
 public:
  using Time = policies::Time;

  // A queue to which nothing was submitted for so long is not at work: longer than the steps of a
  // server and what it does between them.
  static constexpr Time kIdleNs = 20'000'000;

  // `now` never falls.
  void See(uint64_t queue, Time now) {
    if (queue != last_.queue) other_ = std::exchange(last_, {.queue = queue});
    last_.at = now;
  }
  // Whether another one is at work.
  bool Beside(uint64_t queue, Time now) const {
    const Admission& its = last_.queue == queue ? other_ : last_;
    return its.queue != 0 && now - its.at < kIdleNs;
  }

 private:
  struct Admission {
    uint64_t queue = 0;  // 0: none yet
    Time at = 0;
  };
  Admission last_, other_;  // of any queue; of another one than that
};

// As LatestQueues.
class Company {
 public:
  using Time = policies::Time;

  // What an op is to others: a run of a program, one of a batch that could be one, or neither.
  enum class As : uint8_t { kRun, kCouldBeRun, kOp };

  // Counts an op of a queue. What others are at work with, as concert_company. `of_session`: the
  // queues of its session. Runs of several of them would follow one another on all SMs, and go
  // together as single ops: so to one another they are company of ops, and what could be a run is
  // none.
  uint32_t Admitted(uint64_t queue, As as, LatestQueues& of_session, Time now) {
    of_session.See(queue, now);
    const bool one_of_several = of_session.Beside(queue, now);
    any_.See(queue, now);
    if (as == As::kOp || (as == As::kCouldBeRun && one_of_several)) with_ops_.See(queue, now);
    uint32_t company = 0;
    if (any_.Beside(queue, now)) company |= CONCERT_COMPANY;
    if (one_of_several || with_ops_.Beside(queue, now)) company |= CONCERT_COMPANY_OF_OPS;
    return company;
  }

 private:
  LatestQueues any_, with_ops_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_COMPANY_H_
