// What waits for whom among collectives, and what runs: a copy of a moment, made by the issuer.
#ifndef CONCERT_DAEMON_SCHED_COLLECTIVE_REPORT_H_
#define CONCERT_DAEMON_SCHED_COLLECTIVE_REPORT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "policies/seam/transport.h"
#include "policies/seam/work.h"

namespace concert::daemon {

// One op of a communicator that waits for ranks or runs.
struct ReportedCollective {
  uint32_t communicator = 0;
  uint32_t ranks = 0;
  uint32_t uid = 0;  // of all its ranks
  uint64_t sequence = 0;
  uint16_t kind = 0;   // concert_op_kind
  uint64_t bytes = 0;  // count times the element's
  bool running = false;
  uint32_t parts_there = 0;  // that wait; all of them, if it runs
  // When the first part came or, of one that runs, when it was launched.
  policies::Time since = 0;
  // Of one that runs.
  policies::TransportChoice choice;
  policies::Time run_ns = 0;              // predicted
  size_t first_rank = 0, rank_count = 0;  // of CollectiveReport::ranks
};

struct ReportedRank {
  enum class State : uint8_t {
    kThere,    // its part waits, or runs
    kMissing,  // it has joined; its part has not come
    kNotJoined,
  };
  uint32_t rank = 0;
  State state = State::kNotJoined;
  int gpu = -1;          // -1: not joined
  uint32_t session = 0;  // 0: not joined
};

// The asker's until it sends it, the issuer's until `done`, then the asker's. The issuer appends
// within the capacities, so that it allocates nothing: what waits longest first, then what runs.
struct CollectiveReport {
  // Of one answer: some 20 us of the issuer's time at the most.
  static constexpr size_t kMaxCollectives = 128;
  static constexpr size_t kMaxRanks = 1024;

  CollectiveReport() {
    collectives.reserve(kMaxCollectives);
    ranks.reserve(kMaxRanks);
  }
  bool full() const { return collectives.size() == kMaxCollectives; }

  std::vector<ReportedCollective> collectives;
  std::vector<ReportedRank> ranks;
  size_t communicators = 0;
  bool cut = false;  // there is more than fits
  policies::Time taken_at = 0;
  std::atomic<bool> done{false};  // release by the issuer; acquire by the asker
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_COLLECTIVE_REPORT_H_
