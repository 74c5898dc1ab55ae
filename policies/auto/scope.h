// What of a snapshot a decision plans: which class's ops, and what is known of the lanes that they
// would go to.
#ifndef CONCERT_POLICIES_AUTO_SCOPE_H_
#define CONCERT_POLICIES_AUTO_SCOPE_H_

#include <array>
#include <cstdint>
#include <span>

#include "policies/auto/split/site.h"
#include "policies/seam/classes.h"
#include "policies/seam/hash.h"
#include "policies/seam/lanes.h"
#include "policies/seam/snapshot.h"
#include "policies/seam/work_list.h"

namespace concert::policies {

// With plans of at most about 0.2 ms, a class that is always outranked keeps a tenth of the GPU.
inline constexpr Time kMaxHeldNs = 2'000'000;

// Ready ops of one class that run on SMs. Valid as long as what ChooseScope was given.
struct Scope {
  static constexpr int kMaxSideBySide = kNormalLaneCount;
  static constexpr int kComputeLanes = kFirstHighLane + kHighLaneCount;

  const Snapshot* snapshot = nullptr;
  int priority_class = 0;
  bool grouped = false;   // one of them can be part of a launch that takes part in chains
  bool deadline = false;  // one of them has one
  bool held_long = false;
  std::span<const uint16_t> index;       // into Snapshot::ready
  std::array<uint16_t, kMaxReady> kept;  // `index`, if it is not all of a class in its order

  // Where they go, as LookAtLane has it for groups and LookBeside for library kernels.
  GroupGoal goal = GroupGoal::kLatency;
  Lane serial_lane = 0;                   // of what goes out one by one
  bool followed = false;                  // what follows could start beside the end of one of them
  std::array<Lane, kMaxSideBySide> lane;  // if side by side
  std::array<Tail, kComputeLanes> tails;  // beside which library kernels go out
  int tail_count = 0;

  int count() const { return static_cast<int>(index.size()); }
  const ReadyOp& op(int i) const { return snapshot->ready[index[i]]; }
  static uint64_t HashOf(const ReadyOp& op) {
    return op.work_hash != 0 ? op.work_hash : HashWork(op.work);
  }
  uint64_t work_hash(int i) const { return HashOf(op(i)); }
  // Whether the i-th op is of the session of the one before it.
  bool SameSession(int i) const { return i > 0 && op(i).session == op(i - 1).session; }
  bool high() const { return priority_class == ClassOf(Priority::kHigh); }
  int lane_limit() const { return high() ? kHighLaneCount : kMaxSideBySide; }
  std::span<const Tail> tail_span() const {
    return {tails.data(), static_cast<size_t>(tail_count)};
  }
};

// The highest class, unless a lower one has been held back for too long. Beside running work of a
// higher class only what keeps to a budget takes part, if there is any. Nothing is known of lanes
// yet. REQUIRES: ready.total > 0.
void ChooseScope(const Snapshot& snapshot, const ReadyCompute& ready, const RunningCompute& running,
                 const ClassHistory& history, Scope& scope);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_SCOPE_H_
