// Candidates of library kernels side by side on streams.
#ifndef CONCERT_POLICIES_AUTO_SPLIT_STREAM_CANDIDATES_H_
#define CONCERT_POLICIES_AUTO_SPLIT_STREAM_CANDIDATES_H_

#include <array>

#include "policies/auto/split/candidate.h"
#include "policies/auto/split/launch_times.h"
#include "policies/auto/split/offer.h"
#include "policies/cost/cost_model.h"
#include "policies/seam/lanes.h"
#include "policies/seam/work.h"

namespace concert::policies {

// The first ops side by side, in the order of turns: at most as many as there are lanes, and no
// more than a group would have, because what becomes ready waits for all of them. Beside groups
// only as many as possible are a candidate; among library kernels it is a matter of how many.
class StreamCandidates {
 public:
  // Both must outlive this.
  StreamCandidates(const Offer& offer, const LaunchTimes& times)
      : offer_(offer), times_(times), set_(times.device()) {}

  // Takes in one more op. False if there is none that could go out with the others.
  bool Grow();
  // Makes a candidate of those taken in so far. False if it would break a rule: `candidate` then
  // means nothing.
  bool Make(Candidate& candidate) const;

 private:
  float GainBesideTails(const Step& step, float added_us) const;

  const Offer& offer_;
  const LaunchTimes& times_;
  CoRunSet set_;  // on the GPU
  double wave_us_ = 0;
  uint16_t count_ = 0;
  float serial_us_ = 0;
  std::array<Problem, kNormalLaneCount> problems_;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_SPLIT_STREAM_CANDIDATES_H_
