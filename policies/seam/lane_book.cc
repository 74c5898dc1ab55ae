#include "policies/seam/lane_book.h"

#include <algorithm>

namespace concert::policies {
namespace {

// A day: keeps the backlogs of any number of ops, and any prediction, below the bits above them.
constexpr uint64_t kMaxBacklogNs = uint64_t{86'400} * 1'000'000'000;

}  // namespace

LaneBook::LaneBook(const Snapshot& snapshot) {
  for (int lane = 0; lane < kLaneCount; ++lane) {
    const LaneState& state = snapshot.lanes[lane];
    const uint64_t backlog_ns = state.busy_until > snapshot.now
                                    ? static_cast<uint64_t>(state.busy_until - snapshot.now)
                                    : 0;
    rank_[lane] = std::min(backlog_ns, kMaxBacklogNs) + (state.in_flight > 0 ? kBusy : 0);
  }
}

Lane LaneBook::Take(const ReadyOp& op, bool high, double run_time_us) {
  const int first = high ? kFirstHighLane : kFirstNormalLane;
  const int end = first + (high ? kHighLaneCount : kNormalLaneCount);
  // Of equals the first, but the last for a program: behind one on a lane of theirs, groups would
  // wait.
  const bool is_program = op.work.steps > 1;
  int best = first;
  for (int lane = first + 1; lane < end; ++lane) {
    if (rank_[lane] < rank_[best] || (is_program && rank_[lane] == rank_[best])) best = lane;
  }
  // The best lane is one with the fewest planned ops, so a predecessor's lane with no more is as
  // balanced.
  const bool may_follow = op.after >= first && op.after < end;
  if (may_follow && rank_[op.after] / kPlanned == rank_[best] / kPlanned) best = op.after;
  const double run_time_ns = std::min(run_time_us * 1e3, static_cast<double>(kMaxBacklogNs));
  rank_[best] += kPlanned + static_cast<uint64_t>(run_time_ns);
  return static_cast<Lane>(best);
}

}  // namespace concert::policies
