#include "policies/corrections.h"

#include <algorithm>
#include <cmath>

namespace concert::policies {

FormRatios Corrections::RatiosOf(uint64_t signature) const {
  FormRatios ratios;
  std::array<bool, kFormCount> measured;
  float common = 1;
  for (int form = 0; form < kFormCount; ++form) {
    const uint64_t tag = TagOf(signature, static_cast<Form>(form));
    const Slot& slot = slots_[IndexOf(tag)];
    measured[form] = slot.tag == tag && slot.measured;
    if (!measured[form]) continue;
    ratios[form] = slot.ratio;
    common = std::max(common, std::min(slot.ratio, kMaxCommon));
  }
  for (int form = 0; form < kFormCount; ++form) {
    if (!measured[form]) ratios[form] = common;
  }
  return ratios;
}

void Corrections::Chosen(uint64_t signature, Form form) {
  const float ratio = RatiosOf(signature)[static_cast<int>(form)];
  const uint64_t tag = TagOf(signature, form);
  Slot& slot = slots_[IndexOf(tag)];
  if (slot.tag != tag) slot = {.tag = tag};
  slot.ratio = slot.chosen_with = ratio;
  slot.outcomes = 0;
  slot.patience = std::min<uint16_t>(kMaxPatience, 2 * slot.patience + 1);
}

void Corrections::Forget(uint64_t signature) {
  for (int form = 0; form < kFormCount; ++form) {
    const uint64_t tag = TagOf(signature, static_cast<Form>(form));
    Slot& slot = slots_[IndexOf(tag)];
    if (slot.tag == tag) slot = {};
  }
}

bool Corrections::Learn(uint64_t tag, float predicted_us, float actual_us) {
  if (tag == 0 || !(predicted_us >= kMinUs) || !(actual_us > 0)) return false;
  Slot& slot = slots_[IndexOf(tag)];
  if (slot.tag != tag) return false;  // chosen too long ago
  if (slot.outcomes <= kMaxPatience) ++slot.outcomes;
  if (slot.outcomes == 1) return false;
  slot.measured = true;
  const float seen = std::clamp(slot.chosen_with * actual_us / predicted_us, kMin, kMax);
  slot.ratio += std::clamp(kWeight * (seen - slot.ratio), -kMaxStep, kMaxStep);
  return slot.outcomes > slot.patience &&
         std::abs(slot.ratio - slot.chosen_with) > kMaxDrift * slot.chosen_with;
}

}  // namespace concert::policies
