// Which lane an op of a plan goes to.
#ifndef CONCERT_POLICIES_SEAM_LANE_BOOK_H_
#define CONCERT_POLICIES_SEAM_LANE_BOOK_H_

#include <array>
#include <cstdint>

#include "policies/seam/lanes.h"
#include "policies/seam/snapshot.h"

namespace concert::policies {

// Lanes for GEMMs and copies of one plan, kept balanced: until every lane of a kind has an op of
// the plan, no lane gets two.
class LaneBook {
 public:
  explicit LaneBook(const Snapshot& snapshot);

  // A normal or a high lane: `op`'s predecessor's if it is of that kind and free in this plan (no
  // cross-lane wait), else the one that is idle soonest. `run_time_us` is added to the lane's
  // backlog.
  Lane Take(const ReadyOp& op, bool high, double run_time_us);

  // Take gives this lane only when every lane of its kind is closed.
  void Close(Lane lane) { rank_[lane] += kClosed; }

 private:
  // One number to compare lanes by: whether it is closed, then ops of this plan, then whether it is
  // busy, then the backlog in ns.
  static constexpr uint64_t kClosed = uint64_t{1} << 63;
  static constexpr uint64_t kPlanned = uint64_t{1} << 56;
  static constexpr uint64_t kBusy = uint64_t{1} << 55;
  std::array<uint64_t, kLaneCount> rank_;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_SEAM_LANE_BOOK_H_
