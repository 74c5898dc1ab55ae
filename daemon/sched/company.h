// Whether other sessions are at work on the GPU too, for whoever is: some things are better done in
// another way then.
#ifndef CONCERT_DAEMON_SCHED_COMPANY_H_
#define CONCERT_DAEMON_SCHED_COMPANY_H_

#include <cstdint>
#include <utility>

#include "policies/seam/snapshot.h"

namespace concert::daemon {

// Constant time and memory, however many sessions there are. Not thread-safe.
class Company {
 public:
  using Time = policies::Time;

  // A session that has submitted nothing for so long is not at work: longer than the steps of a
  // server and what it does between them.
  static constexpr Time kIdleNs = 20'000'000;

  // Ops of the session were admitted. Whether others are at work, too. `now` never falls.
  bool Admitted(uint32_t session, Time now) {
    if (session != last_.session) other_ = std::exchange(last_, {.session = session});
    last_.at = now;
    return other_.session != 0 && now - other_.at < kIdleNs;
  }

 private:
  struct Admission {
    uint32_t session = 0;  // 0: none yet
    Time at = 0;
  };
  Admission last_, other_;  // of any session; of another one than that
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_COMPANY_H_
