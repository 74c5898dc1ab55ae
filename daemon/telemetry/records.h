// What a dispatcher tells the rest of the daemon about what it did. Plain data through bounded
// single-producer rings (record_ring.h): the hot path writes numbers and never formats, counts or
// locks. The telemetry thread owns everything made of them.
#ifndef CONCERT_DAEMON_TELEMETRY_RECORDS_H_
#define CONCERT_DAEMON_TELEMETRY_RECORDS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "policies/seam/lanes.h"
#include "policies/seam/plan.h"
#include "policies/seam/transport.h"
#include "policies/seam/work.h"

namespace concert::daemon {

using policies::Time;

// One op that ended.
struct OpRecord {
  uint32_t session;
  uint16_t kind;    // concert_op_kind
  uint16_t status;  // concert_status_abi
  uint32_t queue;
  uint16_t others;  // ops in its plan beside it
  policies::Dtype dtype;
  policies::Form form;          // of its launch
  policies::Lane lane;          // kNoLane: it failed before its launch
  policies::Priority priority;  // of its queue
  policies::Reason reason;      // of its plan
  uint64_t plan;                // 0: it failed before any plan
  uint64_t flops, bytes;
  Time admitted_at, ready_at, launched_at;
  Time started_at;   // of its launch
  Time finished_at;  // when the dispatcher saw its timeline
  // Its share of the plan's time: at any moment the plan's unfinished ops share it by their
  // predicted solo times, so that the shares of a plan add up to its time.
  float gpu_us;
  float serial_us;  // its share of the plan's serial_us, by predicted solo time
};

// One plan whose last op ended. All times are what the dispatcher saw, and it sees the end of an op
// only by the op's timeline:
// - A launch starts when it was launched or, if later, when an op before it on its lane was last
//   seen to finish; fixed when the first of its own ops is. So a launch that really began under the
//   tail of the one before counts from the end of that one, or, if one of its ops ends even
//   earlier, from the last end before that.
// - A plan runs from the first start of its launches to the last end of its ops.
// - Ends that are seen at once cannot be told apart: the first of those plans gets the time.
struct PlanRecord {
  static constexpr int kMaxListed = 16;

  struct Listed {
    uint32_t session;
    uint16_t kind;  // concert_op_kind
    policies::RunsOn runs_on;
    policies::Problem problem;  // of its work, whatever it is
  };

  PlanRecord() = default;
  PlanRecord(const PlanRecord& other) { *this = other; }
  // Copies what is listed and no more: most plans hold one op, and a record goes through two
  // copies.
  PlanRecord& operator=(const PlanRecord& other) {
    std::memcpy(static_cast<void*>(this), &other, other.bytes());
    return *this;
  }
  bool is_collective() const { return ops[0].runs_on == policies::RunsOn::kLinks; }
  // Of them, those that say something.
  size_t bytes() const {
    return offsetof(PlanRecord, ops) + std::min<size_t>(op_count, kMaxListed) * sizeof(Listed);
  }

  uint64_t plan;  // counts from 1 per GPU
  // started_at: before finished_at by what the plan took of its lanes' time. Where launches of a
  // lane overlap, it is after the first of its own.
  Time decided_at, started_at, finished_at;
  // From its start as above, so with the part of the launch latency that no earlier work hides, and
  // with the lanes' earlier work where that ends at different times: comparable with finished_at -
  // started_at.
  float predicted_us, serial_us;
  uint16_t op_count, launch_count;
  uint16_t session_count;  // distinct sessions
  std::array<uint16_t, policies::kFormCount> ops_by_form;
  // That its largest launch may use; 0: all. Of a collective: that are left to it; 0: none.
  uint16_t sm_count;
  policies::Transport transport;  // of a collective
  policies::Reason reason;
  policies::Form form;                 // of its largest launch
  std::array<Listed, kMaxListed> ops;  // the first of them; last, for operator=
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TELEMETRY_RECORDS_H_
