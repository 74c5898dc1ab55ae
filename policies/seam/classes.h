// What a snapshot has for SMs by priority class, and which class is to be planned.
#ifndef CONCERT_POLICIES_SEAM_CLASSES_H_
#define CONCERT_POLICIES_SEAM_CLASSES_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include "policies/seam/snapshot.h"

namespace concert::policies {

inline constexpr int kClassCount = 3;
// 0 is the highest.
constexpr int ClassOf(Priority priority) {
  return static_cast<int>(Priority::kHigh) - static_cast<int>(priority);
}

// Groups of one class, and what follows them one by one, share a lane. Normal and low have one
// each, because work on one lane runs in its order.
constexpr Lane SerialLaneOf(int priority_class) {
  constexpr std::array<Lane, kClassCount> kLanes = {kGroupLanes[2], kGroupLanes[0], kGroupLanes[1]};
  return kLanes[priority_class];
}

// Ready ops that run on SMs, class after class as the snapshot has them.
struct ReadyCompute {
  struct Class {
    uint16_t first = 0, count = 0;  // in `index`
    uint16_t grouped = 0;           // that can be part of a launch that takes part in chains
    bool deadline = false;          // one of them has one
  };
  std::array<uint16_t, kMaxReady> index;  // into Snapshot::ready
  std::array<Class, kClassCount> classes;
  int total = 0;

  void Clear() {
    classes.fill({});
    total = 0;
  }
  void Add(int ready_index, const ReadyOp& op, bool grouped) {
    Class& its = classes[ClassOf(op.priority)];
    if (its.count++ == 0) its.first = static_cast<uint16_t>(total);
    its.grouped += grouped;
    its.deadline |= op.deadline != 0;
    index[total++] = static_cast<uint16_t>(ready_index);
  }
  std::span<const uint16_t> OfClass(int wanted) const {
    return {index.data() + classes[wanted].first, classes[wanted].count};
  }
};

// Which classes' ops run on SMs, and until when at the latest.
struct RunningCompute {
  static constexpr Time kIdle = std::numeric_limits<Time>::min();
  // Predictions err by some part of themselves, and beside other work an op takes longer than
  // alone: what runs has at least this share of its time left, also when its end is overdue.
  static constexpr Time kLeastShareLeft = 4;
  std::array<Time, kClassCount> until;

  RunningCompute(std::span<const RunningOp> running, Time now) {
    until.fill(kIdle);
    for (const RunningOp& op : running) {
      if (op.work.runs_on != RunsOn::kSms) continue;
      const Time least_left = (op.expected_end - op.launched_at) / kLeastShareLeft;
      const Time end = std::max(op.expected_end, now + std::max(least_left, Time{0}));
      Time& latest = until[ClassOf(op.priority)];
      latest = std::max(latest, end);
    }
  }
  bool Runs(int wanted) const { return until[wanted] != kIdle; }
  bool HigherRuns(int than) const {
    for (int i = 0; i < than; ++i) {
      if (Runs(i)) return true;
    }
    return false;
  }
  // The end of all that is lower than `than`; kIdle if nothing is.
  Time LowerUntil(int than) const {
    Time latest = kIdle;
    for (int i = than + 1; i < kClassCount; ++i) latest = until[i] > latest ? until[i] : latest;
    return latest;
  }
};

// What the past says of classes: all that `auto` remembers of it, in six numbers.
class ClassHistory {
 public:
  ClassHistory() {
    seen_.fill(kNever);
    planned_.fill(kNever);
  }

  void See(Time now, const ReadyCompute& ready, const RunningCompute& running) {
    for (int i = 0; i < kClassCount; ++i) {
      if (ready.classes[i].count > 0 || running.Runs(i)) seen_[i] = now;
    }
  }
  void Planned(int planned, Time now) { planned_[planned] = now; }

  // Whether a class above `than` was seen within `memory_ns`.
  bool HigherActive(int than, Time now, Time memory_ns) const {
    for (int i = 0; i < than; ++i) {
      if (now - seen_[i] <= memory_ns) return true;
    }
    return false;
  }
  // How long the class, whose first op became ready at `ready_at`, has been without a plan.
  Time HeldNs(int held, Time ready_at, Time now) const {
    return now - (planned_[held] > ready_at ? planned_[held] : ready_at);
  }

 private:
  static constexpr Time kNever = std::numeric_limits<Time>::min() / 2;
  std::array<Time, kClassCount> seen_, planned_;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_SEAM_CLASSES_H_
