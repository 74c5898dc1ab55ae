#include "policies/lane_book.h"

#include <algorithm>
#include <tuple>

namespace concert::policies {

LaneBook::LaneBook(const Snapshot& snapshot) {
  for (int lane = 0; lane < kLaneCount; ++lane) {
    loads_[lane] = {.busy_until = std::max(snapshot.lanes[lane].busy_until, snapshot.now),
                    .in_flight = snapshot.lanes[lane].in_flight};
  }
}

Lane LaneBook::Take(const ReadyOp& op, bool high, double run_time_us) {
  const int first = high ? kFirstHighLane : kFirstNormalLane;
  const int end = first + (high ? kHighLaneCount : kNormalLaneCount);
  const auto rank = [this](int lane) {
    return std::tuple(loads_[lane].planned, loads_[lane].in_flight > 0, loads_[lane].busy_until,
                      loads_[lane].in_flight);
  };
  int best = first;
  for (int lane = first + 1; lane < end; ++lane) {
    if (rank(lane) < rank(best)) best = lane;
  }
  // The best lane is one with the fewest planned ops, so a predecessor's lane with no more is as
  // balanced.
  const bool may_follow = op.after >= first && op.after < end;
  if (may_follow && loads_[op.after].planned == loads_[best].planned) best = op.after;
  ++loads_[best].planned;
  loads_[best].busy_until += static_cast<Time>(run_time_us * 1e3);
  return static_cast<Lane>(best);
}

}  // namespace concert::policies
