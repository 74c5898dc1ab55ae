// What the scheduler of one GPU knows now: the whole input of a decision. A window over the
// sessions' DAGs: what is ready and what runs, the edges behind what is ready (window.h), and the
// collectives that wait for ranks.
#ifndef CONCERT_POLICIES_SEAM_SNAPSHOT_H_
#define CONCERT_POLICIES_SEAM_SNAPSHOT_H_

#include <array>
#include <cstdint>
#include <span>

#include "policies/seam/lanes.h"
#include "policies/seam/work.h"

namespace concert::policies {

inline constexpr int kMaxReady = 256;

// An op that may be launched at once: all it depends on has completed or is launched on a lane it
// can be ordered behind.
struct ReadyOp {
  uint32_t op;  // the scheduler's handle
  uint32_t session;
  Priority priority = Priority::kNormal;
  Lane after =
      kNoLane;  // lane of an unfinished predecessor: launching there needs no cross-lane wait
  Time ready_at = 0;
  Time deadline = 0;  // hint; 0: none
  Work work;
  uint64_t work_hash = 0;  // HashWork(work); 0: not computed
  uint16_t sms = 0;        // of a collective: that it is likely to hold
};

// A launched op that has not finished.
struct RunningOp {
  uint32_t session;
  Lane lane;
  Time launched_at;
  Time expected_end;  // of its launch, by prediction; not in the past
  Work work;
  Priority priority = Priority::kNormal;
  uint16_t reserved_sms = 0;  // of a collective: that it holds, and that others are to leave free
};

// A collective whose part this GPU has offered, and which starts when all ranks' parts are there.
struct WaitingCollective {
  uint32_t op;  // the scheduler's handle of this GPU's part
  uint32_t session;
  Priority priority = Priority::kNormal;
  // Of Work::ranks. News of them may be lost or late: at least so many.
  uint8_t ranks_there = 1;
  uint16_t sms = 0;  // that it is likely to hold
  Time since = 0;    // when the last of these came
  Work work;
};

struct LaneState {
  uint32_t in_flight = 0;  // unfinished ops
  Time busy_until = 0;     // predicted; in the past when idle
};

class Window;

struct Snapshot {
  Time now = 0;
  const DeviceModel* device = nullptr;
  int reserved_sms = 0;  // of all that runs: what a launch should leave free
  // Highest priority first, then least-served session, then longest ready, then admitted first; the
  // scheduler takes sessions that have had about the same for equals. At most kMaxReady.
  std::span<const ReadyOp> ready;
  std::span<const RunningOp> running;
  // In no order. At most kMaxReady: of more, some are not seen.
  std::span<const WaitingCollective> waiting;
  std::array<LaneState, kLaneCount> lanes;
  // What follows ready ops in their queues, for FollowersOf; null: nobody knows.
  const Window* window = nullptr;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_SEAM_SNAPSHOT_H_
