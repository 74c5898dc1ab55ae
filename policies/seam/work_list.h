// Group launches as policies know them: what a work list promises, and who makes it.
#ifndef CONCERT_POLICIES_SEAM_WORK_LIST_H_
#define CONCERT_POLICIES_SEAM_WORK_LIST_H_

#include <cstdint>
#include <memory>
#include <span>

#include "policies/seam/work.h"

namespace concert::policies {

// What a launch is planned for. Launches of a lane overlap: the next one's blocks start on SMs that
// the one before leaves or never had. So a launch behind another costs the SM time it takes,
// however unevenly; one that others wait for, or that has the GPU to itself, costs the time until
// its busiest block ends. A step of a chain, which follows the launch before and is followed by the
// next, costs the time from end to end: what it sets up and loads of W beside the launch before is
// free, if that leaves SMs.
enum class GroupGoal : uint8_t { kLatency, kThroughput, kChain };

// The SMs that a launch may use. Others hold the late ones until late_us after its start, and its
// last blocks, which then begin there, have so much less to do.
struct SmSet {
  constexpr SmSet(int sms = 0) : budget(sms) {}  // NOLINT: mostly none are late
  static constexpr SmSet Late(int sms, float us) {
    SmSet set;
    set.late = sms;
    set.late_us = us;
    return set;
  }
  bool limited() const { return budget > 0 || late > 0; }
  friend constexpr bool operator==(const SmSet&, const SmSet&) = default;

  int budget = 0;  // 0: all
  int late = 0;    // of these
  float late_us = 0;
};

// The rest of a list is between its compiler and the kernel that follows it.
struct WorkList {
  float predicted_us = 0;          // from the launch's start to the end of its last problem
  uint32_t version = 0;            // another once it is old and not handed out any more
  const float* ends_us = nullptr;  // [problems]: predicted end of each, from the start
};

// Compiles work lists, owns them, and says what they would take. What it hands out stays as it is
// until Reclaim(). Not thread-safe.
class WorkListCompiler {
 public:
  virtual ~WorkListCompiler() = default;

  // Nobody reads the lists any more that were handed out: they may make room for others.
  virtual void Reclaim() = 0;
  // A list for `problems`, all of one dtype, on `sms`; null: no room for it. The same problems in
  // the same order with the same SMs and goal give the same list. A lookup for
  // those compiled lately. REQUIRES: 1 to kMaxReady problems of works that are groupable.
  virtual const WorkList* Compile(std::span<const Problem> problems, SmSet sms, GroupGoal goal) = 0;
  // About predicted_us of such a list without compiling it, for comparing candidates.
  virtual float PredictUs(std::span<const Problem> problems, SmSet sms, GroupGoal goal) const = 0;
  // What copying Work::repack_bytes before a launch adds to it; 0 for none.
  virtual float RepackUs(uint64_t bytes) const = 0;
  // Of the ops of one launch.
  virtual uint64_t max_repack_bytes() const = 0;
};

using MakeWorkListCompiler = std::unique_ptr<WorkListCompiler> (*)(const DeviceModel& device);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_SEAM_WORK_LIST_H_
