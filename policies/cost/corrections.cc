#include "policies/cost/corrections.h"

#include <algorithm>
#include <cmath>

namespace concert::policies {

Corrections::Corrections()
    : slots_(std::make_unique<Slot[]>(kSlots)), families_(std::make_unique<Family[]>(kFamilies)) {}

Corrections::Slot& Corrections::SlotOf(uint64_t signature) const {
  return slots_[signature / (PlanTag::kMask + 1) % kSlots];
}

Corrections::Family& Corrections::FamilyOf(uint64_t family) const {
  return families_[(family ^ family >> 32) % kFamilies];
}

// Makes room for it.
Corrections::Family& Corrections::FamilyFor(const Slot& slot) {
  Family& family = FamilyOf(slot.family);
  if (family.family != slot.family) family = {.family = slot.family};
  return family;
}

Corrections::Believed Corrections::BelievedOf(const Subject& subject) const {
  Believed believed{};
  const Slot& slot = SlotOf(subject.signature);
  const Family& family = FamilyOf(subject.family);
  for (int arrangement = 0; arrangement < kArrangementCount; ++arrangement) {
    if (slot.signature == subject.signature && slot.records[arrangement].measured) {
      believed[arrangement] = slot.records[arrangement];
    } else if (subject.family != kNoFamily && family.family == subject.family) {
      believed[arrangement] = family.records[arrangement];
    }
  }
  return believed;
}

bool Corrections::Knows(const Subject& subject) const {
  const Family& family = FamilyOf(subject.family);
  return subject.family != kNoFamily && family.family == subject.family &&
         AnyMeasured(family.records);
}

bool Corrections::AnyMeasured(const Believed& believed) {
  return std::any_of(believed.begin(), believed.end(),
                     [](const Measured& record) { return record.measured; });
}

// What slows all arrangements: no more than it slows the one that it slows least.
float Corrections::CommonOf(const Believed& believed) {
  float common = kMaxCommon;
  for (const Measured& record : believed) {
    if (record.measured) common = std::min(common, record.ratio);
  }
  return std::max(common, kMinCommon);
}

Ratios Corrections::RatiosOf(const Subject& subject) const {
  Ratios ratios;
  ratios.fill(1);
  const Believed believed = BelievedOf(subject);
  if (!AnyMeasured(believed)) return ratios;
  const float unmeasured = CommonOf(believed) * (1 - kOptimism);
  for (int arrangement = 0; arrangement < kArrangementCount; ++arrangement) {
    const Measured& record = believed[arrangement];
    ratios[arrangement] = record.measured ? record.ratio : unmeasured;
  }
  return ratios;
}

void Corrections::Chosen(const Subject& subject, Arrangement arrangement) {
  Slot& slot = SlotOf(subject.signature);
  if (slot.signature != subject.signature) slot = {.signature = subject.signature};
  slot.family = subject.family;
  const float ratio = RatiosOf(subject)[static_cast<int>(arrangement)];
  // After another arrangement it is tried anew; what was measured of it counts until that is over.
  if (slot.arrangement != arrangement) {
    Record& record = slot.records[static_cast<int>(arrangement)];
    record.tried = record.window_outcomes = 0;
  }
  // The same choice once more is no other: its plans are predicted as before.
  if (slot.choice == 0 || slot.arrangement != arrangement || slot.chosen_with != ratio)
    ++slot.choice;
  slot.arrangement = arrangement;
  slot.chosen_with = ratio;
  slot.plans = slot.outcomes = 0;
  slot.patience = std::min<uint16_t>(kMaxPatience, 2 * slot.patience + 1);
}

void Corrections::Forget(const Subject& subject) {
  Slot& slot = SlotOf(subject.signature);
  // No ratio is 0, so that the next choice has another number: outcomes of earlier ones are left
  // out.
  if (slot.signature == subject.signature) {
    slot = {.signature = subject.signature, .choice = slot.choice, .chosen_with = 0};
  }
  Family& family = FamilyOf(subject.family);
  if (family.family == subject.family) family = {};
}

Corrections::Named Corrections::Planned(uint64_t signature, Arrangement arrangement) {
  Slot& slot = SlotOf(signature);
  if (slot.signature != signature || slot.arrangement != arrangement || slot.choice == 0) return {};
  if (slot.plans < kPatientPlans) ++slot.plans;
  if (slot.plans == 1) return {};
  Named named{.tag = PlanTag::Of(signature, slot.choice, arrangement)};
  Record& record = slot.records[static_cast<int>(arrangement)];
  if (slot.plans < kPatientPlans || slot.outcomes > 0 || record.measured) return named;
  const Believed believed = BelievedOf({.signature = signature, .family = slot.family});
  if (!AnyMeasured(believed)) {
    slot.plans = 1;  // as many more before it is looked at again
    return named;
  }
  record.ratio = CommonOf(believed);
  record.measured = true;
  named.choose_anew = true;
  return named;
}

// Whether the trial is over.
bool Corrections::Try(Record& record, float ratio) {
  if (record.tried == 0) record.sum = 0, record.least = record.most = ratio;
  record.sum += ratio;
  record.least = std::min(record.least, ratio);
  record.most = std::max(record.most, ratio);
  if (++record.tried < kTrial) return false;
  record.ratio = std::clamp((record.sum - record.least - record.most) / (kTrial - 2), kMin, kMax);
  record.measured = true;
  return true;
}

// A family follows what its signatures measure.
void Corrections::Follow(const Slot& slot, int arrangement, float ratio) {
  if (slot.family == kNoFamily) return;
  Measured& measured = FamilyFor(slot).records[arrangement];
  measured.ratio = measured.measured ? measured.ratio + kWeight * (ratio - measured.ratio) : ratio;
  measured.measured = true;
}

void Corrections::Review(Slot& slot) {
  const auto forget = [&](auto& records) {
    for (int arrangement = 0; arrangement < kArrangementCount; ++arrangement) {
      float& ratio = records[arrangement].ratio;
      if (arrangement != static_cast<int>(slot.arrangement)) {
        ratio = std::max(kMin, ratio * (1 - kForget));
      }
    }
  };
  forget(slot.records);
  if (slot.family != kNoFamily) forget(FamilyFor(slot).records);
}

bool Corrections::Learn(uint64_t tag, float predicted_us, float actual_us) {
  const uint32_t arrangement = PlanTag::ArrangementOf(tag);
  if (arrangement >= kArrangementCount || !(predicted_us > 0) || !(actual_us > 0)) return false;
  const uint64_t signature = PlanTag::SignatureOf(tag);
  Slot& slot = SlotOf(signature);
  // Chosen too long ago, with another ratio.
  if (slot.signature != signature || PlanTag::Of(signature, slot.choice, slot.arrangement) != tag) {
    return false;
  }
  // Also of one that only a ratio makes short: else a wrong one would stay.
  if (std::max(predicted_us, predicted_us / slot.chosen_with) < kMinUs) return false;
  ++slot.outcomes;
  Record& record = slot.records[arrangement];
  const float outcome = slot.chosen_with * actual_us / predicted_us;
  if (record.tried < kTrial) {
    if (!Try(record, outcome)) return false;
    Follow(slot, arrangement, record.ratio);
    return true;
  }
  if (record.window_outcomes == 0) record.window_sum = 0;
  record.window_sum += outcome;
  if (++record.window_outcomes < kWindow) return false;
  record.window_outcomes = 0;
  const float seen = std::clamp(record.window_sum / kWindow, kMin, kMax);
  record.ratio += std::clamp(kWeight * (seen - record.ratio), -kMaxStep, kMaxStep);
  Follow(slot, arrangement, record.ratio);
  if (slot.outcomes >= kReview) {
    Review(slot);
    return true;
  }
  return slot.outcomes > slot.patience &&
         std::abs(record.ratio - slot.chosen_with) > kMaxDrift * slot.chosen_with;
}

}  // namespace concert::policies
