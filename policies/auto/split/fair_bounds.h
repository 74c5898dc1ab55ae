// When each session's ready ops would have ended had sessions taken turns: the bound that running
// together must keep to.
//
// With W(s) the time of session s's ops one after the other, each with its best kernel alone, the
// bound is the later of two fair ways to take turns:
//   its turn in the given order (least served first):  sum of W(t) over t up to s;
//   equal shares from the start (processor sharing):   sum of min(W(s), W(t)) over all t.
// One session after the other in the given order keeps to the first, shortest session first to the
// second, so there is always a way to keep to all bounds.
#ifndef CONCERT_POLICIES_AUTO_SPLIT_FAIR_BOUNDS_H_
#define CONCERT_POLICIES_AUTO_SPLIT_FAIR_BOUNDS_H_

#include <array>
#include <cstdint>

#include "policies/seam/snapshot.h"

namespace concert::policies {

class FairBounds {
 public:
  void Clear() { sessions_ = 0; }
  // Ops in the order of the snapshot. A run of ops of one session counts as one session: sessions
  // of several queues that have had about the same come by turns, and their bounds are looser then.
  // At most kMaxReady ops.
  void Add(float serial_us, bool same_session_as_before) {
    if (sessions_ == 0 || !same_session_as_before) work_us_[sessions_++] = 0;
    work_us_[sessions_ - 1] += serial_us;
  }
  // Session of the op added last: 0, 1, ...
  uint16_t last_session() const { return static_cast<uint16_t>(sessions_ - 1); }

  // After the last Add. Every bound is `slack_us` later.
  void FindBounds(float slack_us = 0);
  float BoundUs(int session) const { return bound_us_[session]; }

 private:
  int sessions_ = 0;
  std::array<float, kMaxReady> work_us_, bound_us_;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_SPLIT_FAIR_BOUNDS_H_
