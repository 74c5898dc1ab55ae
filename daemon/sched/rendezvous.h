// Where the ranks of a collective meet. Parts are matched by communicator and sequence number; when
// all ranks' parts are there and agree they are handed on together, so that no SM ever spins for a
// late process. Ranks that disagree, leave, refuse or are late make every rank's part fail with a
// sentence that says who. A pure state machine: no threads, no clock, no device.
#ifndef CONCERT_DAEMON_SCHED_RENDEZVOUS_H_
#define CONCERT_DAEMON_SCHED_RENDEZVOUS_H_

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/config/defaults.h"
#include "daemon/device/device.h"
#include "daemon/sched/op_pool.h"
#include "kernels/failure.h"

namespace concert::daemon {

class Rendezvous {
 public:
  struct Options {
    // From the first part's arrival to the last's.
    policies::Time timeout_ns = defaults::kCollectiveTimeoutMs * 1'000'000;
    size_t max_open = 1024;  // sequence numbers open in one communicator
  };

  // A rank's part. `op` belongs to the dispatcher of `gpu` and stays as it is until the part's
  // outcome.
  struct Part {
    const Op* op = nullptr;
    OpId id = kNone;
    uint8_t gpu = 0;
    policies::Lane lane = policies::kCollectiveLane;
    TimelineWrite signal;
  };
  // What became of parts: all ranks' parts in rank order, to be launched together; or one part that
  // failed.
  struct Matched {
    size_t first = 0, count = 0;  // of Outcomes::parts
  };
  struct Failed {
    Part part;
    kernels::Failure failure;
  };
  // Used again and again, so that in steady state nothing here allocates.
  struct Outcomes {
    std::vector<Matched> matched;
    std::vector<Part> parts;
    std::vector<Failed> failed;
    std::span<const Part> PartsOf(const Matched& match) const {
      return {parts.data() + match.first, match.count};
    }
    void Clear() {
      matched.clear();
      parts.clear();
      failed.clear();
    }
  };

  explicit Rendezvous(const Options& options) : options_(options) {}

  // Events. Each appends to `out`.
  void Join(uint32_t communicator, uint32_t rank, uint32_t ranks);
  // The rank is gone: every open and later op that needs it fails. The communicator ends with its
  // last rank.
  void Leave(uint32_t communicator, uint32_t rank, Outcomes& out);
  void Arrive(uint32_t communicator, uint32_t rank, const Part& part, policies::Time now,
              Outcomes& out);
  // The rank's part of `sequence` failed before it could arrive.
  void Refuse(uint32_t communicator, uint32_t rank, uint64_t sequence, policies::Time now,
              Outcomes& out);
  // Fails what has waited too long, naming a rank that is missing.
  void Expire(policies::Time now, Outcomes& out);
  // Gives back every part, those that come later too.
  void FailAll(const kernels::Failure& failure, Outcomes& out);

  // Whether anything waits, and so Expire is worth calling.
  bool waiting() const { return open_parts_ > 0; }

 private:
  // One op of a communicator, from its first part to its last.
  struct Open {
    std::vector<Part> parts;  // by rank; op == nullptr: not here
    std::vector<bool> seen;   // by rank: its part arrived or was refused
    uint32_t settled = 0;     // how many of `seen` are set
    policies::Time first_arrival = 0;
    kernels::Failure failure;  // not ok: every part fails, those that come later too
  };
  struct Communicator {
    std::vector<bool> joined;  // by rank
    std::vector<bool> left;
    uint32_t present = 0;
    kernels::Failure broken;        // not ok: a rank left
    std::map<uint64_t, Open> open;  // by sequence; rank order of arrival is not assumed
    std::vector<std::map<uint64_t, Open>::node_type> spare;  // closed, for the ops to come
  };

  Open* FindOrOpen(Communicator& communicator, uint64_t sequence, policies::Time now);
  void Settle(Communicator& communicator, uint64_t sequence, Open& open, uint32_t rank);
  void Fail(Open& open, const kernels::Failure& failure, Outcomes& out);
  static kernels::Failure Compare(const Open& open, uint32_t rank);
  kernels::Failure MissingRank(uint32_t id, const Communicator& communicator, const Open& open,
                               uint64_t sequence) const;

  const Options options_;
  absl::flat_hash_map<uint32_t, Communicator> communicators_;
  kernels::Failure closed_;  // not ok: FailAll was called
  size_t open_parts_ = 0;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_RENDEZVOUS_H_
