// When a lane will have done what was launched on it.
#ifndef CONCERT_DAEMON_SCHED_LANE_CLOCK_H_
#define CONCERT_DAEMON_SCHED_LANE_CLOCK_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "policies/seam/snapshot.h"

namespace concert::daemon {

// Launches of a lane run one after the other. Of all that is unfinished only the oldest one runs:
// it started when the one before it was seen to end, whatever had been predicted, so that neither
// launches that are late nor launches that are early add up. A launch that is overdue counts as
// about to end; what is behind it still takes its predicted time. Fixed memory. Not thread-safe.
class LaneClock {
 public:
  using Time = policies::Time;

  // A launch of `ops` ops that is predicted to end at `end`, behind all others of the lane. Returns
  // what names it. REQUIRES: end >= BusyUntil(now), end >= now.
  uint32_t Launched(Time now, Time end, uint32_t ops) {
    const Time ns = end - std::max(now, BusyUntil(now));
    total_ns_ += ns;
    all_ns_ += ns;
    if (idle()) since_ = now;
    if (next_ - first_ == kCapacity) {
      // More than there is room for are one launch: their order is lost, not their time.
      Entry& newest = entries_[(next_ - 1) % kCapacity];
      newest = {.ns = newest.ns + ns, .until_ns = all_ns_, .ops = newest.ops + ops};
      return next_ - 1;
    }
    entries_[next_ % kCapacity] = {.ns = ns, .until_ns = all_ns_, .ops = ops};
    return next_++;
  }

  // An op of the launch has ended.
  void Finished(uint32_t launch, Time now) {
    --entries_[launch % kCapacity].ops;
    bool ended = false;
    for (; first_ != next_ && entries_[first_ % kCapacity].ops == 0; ++first_, ended = true) {
      total_ns_ -= entries_[first_ % kCapacity].ns;
    }
    if (ended) since_ = now;
  }

  // In the past, if the lane is idle: when it became so.
  Time BusyUntil(Time now) const {
    if (idle()) return since_;
    return std::max(now, RunningUntil()) + total_ns_ - running_ns();
  }

  // When the launch is predicted to end: behind those before it, whatever is behind it. REQUIRES:
  // one of its ops is unfinished.
  Time EndOf(uint32_t launch, Time now) const {
    return std::max(now, RunningUntil()) + entries_[launch % kCapacity].until_ns -
           entries_[first_ % kCapacity].until_ns;
  }

  // When the launch that runs is predicted to end, even if that has passed. REQUIRES: one does.
  Time RunningUntil() const { return since_ + entries_[first_ % kCapacity].ns; }

  // Predicted time of the launch that runs, 0 if none does.
  Time running_ns() const { return idle() ? 0 : entries_[first_ % kCapacity].ns; }

 private:
  static constexpr uint32_t kCapacity = 64;
  struct Entry {
    Time ns = 0;
    Time until_ns = 0;  // of all launches of the lane up to this one
    uint32_t ops = 0;   // unfinished
  };

  bool idle() const { return first_ == next_; }

  std::array<Entry, kCapacity> entries_{};
  uint32_t first_ = 0, next_ = 0;  // launches [first_, next_) are unfinished; they wrap
  Time since_ = 0;                 // the oldest unfinished launch started, or the last one ended
  Time total_ns_ = 0;              // of what is unfinished
  Time all_ns_ = 0;                // of every launch there has been
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_LANE_CLOCK_H_
