#include "policies/auto/split/fair_bounds.h"

#include <algorithm>

namespace concert::policies {
namespace {

// Sums of the same floats in another order differ.
constexpr float kRounding = 1.0001f;

}  // namespace

void FairBounds::FindBounds(float slack_us) {
  float turn_us = 0;
  for (int s = 0; s < sessions_; ++s) {
    turn_us += work_us_[s];
    float share_us = 0;
    for (int t = 0; t < sessions_; ++t) share_us += std::min(work_us_[s], work_us_[t]);
    bound_us_[s] = (std::max(turn_us, share_us) + slack_us) * kRounding;
  }
}

}  // namespace concert::policies
