#include "policies/corrections.h"

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

// What slows all forms: no more than it slows the one that it slows least.
float Corrections::CommonOf(const Slot& slot) {
  float common = kMaxCommon;
  for (const Record& record : slot.records) {
    if (record.measured) common = std::min(common, record.ratio);
  }
  return common;
}

FormRatios Corrections::RatiosOf(uint64_t signature) const {
  FormRatios ratios;
  ratios.fill(1);
  const Slot& slot = SlotOf(signature);
  if (slot.signature != signature || !AnyMeasured(slot)) return ratios;
  const float unmeasured = CommonOf(slot) * (1 - kOptimism);
  for (int form = 0; form < kFormCount; ++form) {
    const Record& record = slot.records[form];
    ratios[form] = record.measured ? record.ratio : unmeasured;
  }
  return ratios;
}

void Corrections::Chosen(uint64_t signature, Form form) {
  Slot& slot = SlotOf(signature);
  if (slot.signature != signature) slot = {.signature = signature};
  const float ratio = RatiosOf(signature)[static_cast<int>(form)];
  // After another form it is tried anew; what was measured of it counts until that is over.
  if (slot.form != form) slot.records[static_cast<int>(form)].tried = 0;
  // The same choice once more is no other: its plans are predicted as before.
  if (slot.choice == 0 || slot.form != form || slot.chosen_with != ratio) ++slot.choice;
  slot.form = form;
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

Corrections::Named Corrections::Planned(uint64_t signature, Form form) {
  Slot& slot = SlotOf(signature);
  if (slot.signature != signature || slot.form != form || slot.choice == 0) return {};
  Named named{.tag = PlanTag::Of(signature, slot.choice, form)};
  Record& record = slot.records[static_cast<int>(form)];
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
  for (int form = 0; form < kFormCount; ++form) {
    Record& record = slot.records[form];
    if (form != static_cast<int>(slot.form)) {
      record.ratio = std::max(kMin, record.ratio * (1 - kForget));
    }
  }
}

bool Corrections::Learn(uint64_t tag, float predicted_us, float actual_us) {
  const uint32_t form = PlanTag::FormOf(tag);
  if (form >= kFormCount || !(predicted_us >= kMinUs) || !(actual_us > 0)) return false;
  const uint64_t signature = PlanTag::SignatureOf(tag);
  Slot& slot = SlotOf(signature);
  // Chosen too long ago, with another ratio.
  if (slot.signature != signature || PlanTag::Of(signature, slot.choice, slot.form) != tag) {
    return false;
  }
  if (++slot.outcomes == 1) return false;
  Record& record = slot.records[form];
  const float seen = std::clamp(slot.chosen_with * actual_us / predicted_us, kMin, kMax);
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
