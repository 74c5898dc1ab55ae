// A way to split an offer into launches, while it is weighed against others.
#ifndef CONCERT_POLICIES_AUTO_SPLIT_CANDIDATE_H_
#define CONCERT_POLICIES_AUTO_SPLIT_CANDIDATE_H_

#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include "policies/auto/split/launch_split.h"
#include "policies/auto/split/launch_times.h"
#include "policies/auto/split/offer.h"
#include "policies/seam/form.h"
#include "policies/seam/work.h"

namespace concert::policies {

// A group beyond this much work is split: what becomes ready while it runs waits for all of it, and
// by then another launch costs less than 1 %. What was measured: ADR 13, "What the constants rest
// on".
inline constexpr float kMaxGroupUs = 500;

struct Candidate {
  static constexpr uint8_t kLater = 255;  // in step_of: not in this plan
  static_assert(LaunchSplit::kMaxSteps < kLater);
  static constexpr float kNever = std::numeric_limits<float>::infinity();

  std::array<Step, LaunchSplit::kMaxSteps> steps;
  std::array<uint8_t, kMaxReady> step_of;  // by op of the offer
  int step_count = 0;
  Arrangement arrangement = Arrangement::kSingle;
  float score_us = 0;  // less is better; kNever: it breaks a rule
};

// The problems of a candidate, side by side for each step in the order of their ops.
class StepProblems {
 public:
  using Begins = std::array<uint16_t, LaunchSplit::kMaxSteps>;

  void Lay(const Offer& offer, const Candidate& candidate);
  // Of the candidate that was laid last.
  std::span<const Problem> Of(const Candidate& candidate, int step) const {
    return {problems_.data() + begins_[step], candidate.steps[step].count};
  }
  // Where each step begins, counted in ops.
  const Begins& begins() const { return begins_; }

  // Lays those of works[ops[i]] only.
  std::span<const Problem> Lay(std::span<const Work* const> works, std::span<const uint8_t> ops);

 private:
  std::array<Problem, kMaxReady> problems_;
  Begins begins_;
};

// The steps' times, its arrangement and its score. kNever for one that breaks rule 1
// (launch_splitter.h), or puts off the op whose turn it is.
void Evaluate(const Offer& offer, LaunchTimes& times, StepProblems& problems, Candidate& candidate);

// Whether it breaks rule 2.
bool Harms(const Offer& offer, const Candidate& candidate);

// The time of the ops that are not in this plan, one after the other.
float LaterUs(const Offer& offer, const Candidate& candidate);

// What candidates are compared by: the time of all ops on the GPU or on the host, whichever is
// longer, and some of what others wait for the host. Library kernels alone always take the host the
// same.
float ScoreUs(const Offer& offer, float gpu_us, float host_us);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_SPLIT_CANDIDATE_H_
