#include "policies/auto/split/candidate.h"

#include <algorithm>

namespace concert::policies {
namespace {

// The thread that launches is shared by all clients: what it does for one keeps others waiting. So
// many launches that are predicted a little faster than one are not worth it. What was measured:
// ADR 13, "What the constants rest on".
constexpr float kHostShare = 0.1f;

// A candidate's steps are corrected by what plans that are arranged like it took: launches in turn
// cost what none of them would cost alone. So a few large GEMMs as launches of their own behind one
// group of the rest are not judged by how groups did, nor the other way round; and where two groups
// in turn take longer than predicted, one group of all need not (ADR 13).
Arrangement ArrangementOf(const Candidate& candidate) {
  const auto steps = std::span(candidate.steps).first(candidate.step_count);
  const auto groups = std::count_if(steps.begin(), steps.end(),
                                    [](const Step& step) { return step.form == Form::kGroup; });
  if (groups == 0) return Arrangement::kSingle;
  if (groups < std::ssize(steps)) return Arrangement::kMixed;
  return groups == 1 ? Arrangement::kGroup : Arrangement::kGroups;
}

// Of row ops side by side in one launch: they share the bandwidth of the memory. Not corrected.
float RowsUs(const DeviceModel& device, const Offer& offer, const Candidate& candidate, int step) {
  double longest_us = 0, hbm_us = 0;
  for (int i = 0; i < offer.count(); ++i) {
    if (candidate.step_of[i] != step) continue;
    longest_us = std::max(longest_us, offer.op(i).cost.solo_us - device.kernel_floor_us);
    hbm_us += offer.op(i).cost.hbm_us;
  }
  return static_cast<float>(device.kernel_floor_us + std::max(longest_us, hbm_us));
}

}  // namespace

void StepProblems::Lay(const Offer& offer, const Candidate& candidate) {
  Begins next;
  uint16_t begin = 0;
  for (int p = 0; p < candidate.step_count; ++p) {
    next[p] = begins_[p] = begin;
    begin = static_cast<uint16_t>(begin + candidate.steps[p].count);
  }
  for (int i = 0; i < offer.count(); ++i) {
    const uint8_t p = candidate.step_of[i];
    if (p != Candidate::kLater) problems_[next[p]++] = Problem::Of(*offer.op(i).work);
  }
}

std::span<const Problem> StepProblems::Lay(std::span<const Work* const> works,
                                           std::span<const uint8_t> ops) {
  for (size_t i = 0; i < ops.size(); ++i) problems_[i] = Problem::Of(*works[ops[i]]);
  return {problems_.data(), ops.size()};
}

void Evaluate(const Offer& offer, LaunchTimes& times, StepProblems& problems,
              Candidate& candidate) {
  problems.Lay(offer, candidate);
  candidate.arrangement = ArrangementOf(candidate);
  const float ratio = times.Ratio(candidate.arrangement);
  float gpu_us = 0, host_us = 0;
  bool slower = false;
  for (int p = 0; p < candidate.step_count; ++p) {
    Step& step = candidate.steps[p];
    if (step.count > 1) {
      step.predicted_us =
          step.rows ? RowsUs(times.device(), offer, candidate, p)
                    : times.GroupUs(problems.Of(candidate, p), step.repack_bytes, step.tuned);
    }
    step.predicted_us *= ratio;
    slower |= step.count > 1 && step.predicted_us > step.serial_us;  // rule 1
    gpu_us += step.predicted_us;
    host_us += step.form == Form::kGroup || step.rows ? kGroupHostUs : kLibraryHostUs * step.count;
  }
  slower |= candidate.step_of[0] == Candidate::kLater;  // the fairest turn is never put off
  candidate.score_us =
      slower ? Candidate::kNever : ScoreUs(offer, gpu_us + LaterUs(offer, candidate), host_us);
}

// A problem of a group with a work list ends when that says, any other op with its step.
bool Harms(const Offer& offer, const Candidate& candidate) {
  std::array<float, LaunchSplit::kMaxSteps> start_us;
  std::array<uint16_t, LaunchSplit::kMaxSteps> seen{};
  float end_us = 0;
  for (int p = 0; p < candidate.step_count; ++p) {
    start_us[p] = end_us;
    end_us += candidate.steps[p].predicted_us;
  }
  for (int i = 0; i < offer.count(); ++i) {
    const int p = candidate.step_of[i];
    if (p == Candidate::kLater) continue;
    const Step& step = candidate.steps[p];
    const int problem = seen[p]++;
    if (offer.item(i).urgent) continue;
    float run_us = step.predicted_us;
    if (step.work_list != nullptr) {
      run_us *= step.work_list->ends_us[problem] / step.work_list->predicted_us;
    }
    if (start_us[p] + run_us > offer.BoundUs(i)) return true;
  }
  return false;
}

float LaterUs(const Offer& offer, const Candidate& candidate) {
  float sum_us = 0;
  for (int i = 0; i < offer.count(); ++i) {
    if (candidate.step_of[i] == Candidate::kLater) sum_us += offer.item(i).serial_us;
  }
  return sum_us;
}

float ScoreUs(const Offer& offer, float gpu_us, float host_us) {
  return offer.may_group() ? std::max(gpu_us, host_us) + kHostShare * host_us : gpu_us;
}

}  // namespace concert::policies
