#include "policies/cost/corrections.h"

#include <algorithm>
#include <cmath>

namespace concert::policies {

Corrections::Corrections() : slots_(std::make_unique<Slot[]>(kSlots)) {}

Corrections::Slot& Corrections::SlotOf(uint64_t signature) const {
  return slots_[signature / (PlanTag::kMask + 1) % kSlots];
}

bool Corrections::AnyMeasured(const Slot& slot) {
  return std::any_of(slot.records.begin(), slot.records.end(),
                     [](const Record& record) { return record.measured; });
}

// What slows all arrangements: no more than it slows the one that it slows least.
float Corrections::CommonOf(const Slot& slot) {
  float common = kMaxCommon;
  for (const Record& record : slot.records) {
    if (record.measured) common = std::min(common, record.ratio);
  }
  return std::max(common, kMinCommon);
}

Ratios Corrections::RatiosOf(uint64_t signature) const {
  Ratios ratios;
  ratios.fill(1);
  const Slot& slot = SlotOf(signature);
  if (slot.signature != signature || !AnyMeasured(slot)) return ratios;
  const float unmeasured = CommonOf(slot) * (1 - kOptimism);
  for (int arrangement = 0; arrangement < kArrangementCount; ++arrangement) {
    const Record& record = slot.records[arrangement];
    ratios[arrangement] = record.measured ? record.ratio : unmeasured;
  }
  return ratios;
}

void Corrections::Chosen(uint64_t signature, Arrangement arrangement) {
  Slot& slot = SlotOf(signature);
  if (slot.signature != signature) slot = {.signature = signature};
  const float ratio = RatiosOf(signature)[static_cast<int>(arrangement)];
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

void Corrections::Forget(uint64_t signature) {
  Slot& slot = SlotOf(signature);
  // No ratio is 0, so that the next choice has another number: outcomes of earlier ones are left
  // out.
  if (slot.signature == signature) {
    slot = {.signature = signature, .choice = slot.choice, .chosen_with = 0};
  }
}

Corrections::Named Corrections::Planned(uint64_t signature, Arrangement arrangement) {
  Slot& slot = SlotOf(signature);
  if (slot.signature != signature || slot.arrangement != arrangement || slot.choice == 0) return {};
  Named named{.tag = PlanTag::Of(signature, slot.choice, arrangement)};
  Record& record = slot.records[static_cast<int>(arrangement)];
  if (slot.plans < kPatientPlans) ++slot.plans;
  if (slot.plans < kPatientPlans || slot.outcomes > 0 || record.measured) return named;
  if (!AnyMeasured(slot)) return named;
  record.ratio = CommonOf(slot);
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
  record.ratio = (record.sum - record.least - record.most) / (kTrial - 2);
  record.measured = true;
  return true;
}

void Corrections::Review(Slot& slot) {
  for (int arrangement = 0; arrangement < kArrangementCount; ++arrangement) {
    Record& record = slot.records[arrangement];
    if (arrangement != static_cast<int>(slot.arrangement)) {
      record.ratio = std::max(kMin, record.ratio * (1 - kForget));
    }
  }
}

bool Corrections::Learn(uint64_t tag, float predicted_us, float actual_us) {
  const uint32_t arrangement = PlanTag::ArrangementOf(tag);
  if (arrangement >= kArrangementCount || !(predicted_us >= kMinUs) || !(actual_us > 0))
    return false;
  const uint64_t signature = PlanTag::SignatureOf(tag);
  Slot& slot = SlotOf(signature);
  // Chosen too long ago, with another ratio.
  if (slot.signature != signature || PlanTag::Of(signature, slot.choice, slot.arrangement) != tag) {
    return false;
  }
  if (++slot.outcomes == 1) return false;
  Record& record = slot.records[arrangement];
  if (record.window_outcomes == 0) record.window_sum = 0;
  record.window_sum += slot.chosen_with * actual_us / predicted_us;
  if (++record.window_outcomes < kWindow) return false;
  record.window_outcomes = 0;
  const float seen = std::clamp(record.window_sum / kWindow, kMin, kMax);
  if (record.tried < kTrial) return Try(record, seen);
  record.ratio += std::clamp(kWeight * (seen - record.ratio), -kMaxStep, kMaxStep);
  if (slot.outcomes >= kReview) {
    Review(slot);
    return true;
  }
  return slot.outcomes > slot.patience &&
         std::abs(record.ratio - slot.chosen_with) > kMaxDrift * slot.chosen_with;
}

}  // namespace concert::policies
