#include "policies/auto/split/launch_splitter.h"

#include <cstdint>

#include "policies/auto/split/stream_candidates.h"

namespace concert::policies {
namespace {

// Problems whose time in a group is predicted for one choice, at up to 0.1 us each.
constexpr int kMaxPredicted = 512;
// Candidates that get as far as a work list, which costs as much as all that went before.
constexpr int kMaxCompiled = 2;

}  // namespace

void LaunchSplitter::Choose(std::span<const SplitOp> ops, const Site& site, const Ratios& ratios,
                            LaunchSplit& result) {
  times_.Start(site, ratios);
  offer_.Take(ops, times_);
  candidate_count_ = 0;
  TryGroups({0, 0}, /*join_rows=*/false);
  if (offer_.row_count() > 1) TryGroups({0, 0}, /*join_rows=*/true);
  const Groupings groupings(offer_);
  for (const Grouping grouping : groupings.all()) TryGroups(grouping, /*join_rows=*/true);
  TryStreams();
  int compiled = 0;
  while (true) {
    Candidate* best = &candidates_[0];
    for (int i = 1; i < candidate_count_ && compiled < kMaxCompiled; ++i) {
      if (candidates_[i].score_us < best->score_us) best = &candidates_[i];
    }
    // The first candidate harms nobody, by construction.
    if (Confirm(*best, result) || best == &candidates_[0]) return;
    best->score_us = Candidate::kNever;
    ++compiled;
  }
}

void LaunchSplitter::TryGroups(Grouping grouping, bool join_rows) {
  if (candidate_count_ == kMaxCandidates) return;
  if (candidate_count_ > 0 && times_.predicted() + grouping.alone_from > kMaxPredicted) return;
  Candidate& candidate = candidates_[candidate_count_++];
  BuildCandidate(offer_, grouping, join_rows, times_.max_repack_bytes(), candidate);
  Evaluate(offer_, times_, problems_, candidate);
  if (candidate_count_ == 1) AvoidMixture();
}

// Ops one by one, some of them as groups and some not, may have been seen to take longer than all
// of them by the library, though each was the better choice by itself.
void LaunchSplitter::AvoidMixture() {
  Candidate& one_by_one = candidates_[0];
  if (one_by_one.arrangement != Arrangement::kMixed || times_.site().sms.limited()) return;
  float excess_us = 0;
  const int steps = StepsToLaunch(one_by_one);
  for (int p = 0; p < steps; ++p)
    excess_us += one_by_one.steps[p].predicted_us - one_by_one.steps[p].serial_us;
  if (excess_us <= 0) return;
  UseLibrary(offer_, one_by_one);
  Evaluate(offer_, times_, problems_, one_by_one);
}

void LaunchSplitter::TryStreams() {
  if (times_.site().sms.limited()) return;
  StreamCandidates streams(offer_, times_);
  const auto make = [&] {
    if (candidate_count_ == kMaxCandidates) return;
    candidate_count_ += streams.Make(candidates_[candidate_count_]);
  };
  while (streams.Grow()) {
    if (!offer_.may_group()) make();
  }
  if (offer_.may_group()) make();
}

// Compiles the work lists of the steps that will be launched and holds the candidate against the
// rules with what they say. False if it breaks one.
bool LaunchSplitter::Confirm(Candidate& candidate, LaunchSplit& result) {
  problems_.Lay(offer_, candidate);
  const int steps = StepsToLaunch(candidate);
  const float ratio = times_.Ratio(candidate.arrangement);
  for (int p = 0; p < steps; ++p) {
    Step& step = candidate.steps[p];
    if (step.form != Form::kGroup || step.rows) continue;
    if (!ConfirmStep(problems_.Of(candidate, p), ratio, step)) return false;
  }
  WriteResult(candidate, steps, result);
  return !Harms(offer_, candidate);
}

bool LaunchSplitter::ConfirmStep(std::span<const Problem> problems, float ratio, Step& step) const {
  times_.CompileList(problems, times_.site(), step);
  if (step.work_list != nullptr && !step.tuned) step.predicted_us = times_.ListedUs(step, ratio);
  const bool budgeted = times_.site().sms.limited();
  if (step.count > 1) return step.work_list != nullptr && step.predicted_us <= step.serial_us;
  if (step.work_list == nullptr || (!budgeted && step.predicted_us > step.serial_us)) {
    step.form = Form::kSingle;
    step.predicted_us = step.serial_us;
    step.repack_bytes = 0;
    step.tuned = false;
    step.work_list = nullptr;
  } else if (budgeted) {
    step.serial_us = step.predicted_us;
  }
  return true;
}

// Up to the horizon, and in any case the op whose turn it is. Where SMs are late they are so for
// the first launch: what follows is decided when that is known to have begun.
int LaunchSplitter::StepsToLaunch(const Candidate& candidate) const {
  float sum_us = 0;
  for (int p = 0; p < candidate.step_count; ++p) {
    sum_us += candidate.steps[p].predicted_us;
    const bool enough = sum_us >= kHorizonUs || times_.site().sms.late > 0;
    if (enough && p >= candidate.step_of[0]) return p + 1;
  }
  return candidate.step_count;
}

void LaunchSplitter::WriteResult(const Candidate& candidate, int steps, LaunchSplit& result) const {
  result.step_count = static_cast<uint8_t>(steps);
  result.form = Form::kSingle;
  result.arrangement = candidate.arrangement;
  result.all_us = LaterUs(offer_, candidate);
  result.op_count = 0;
  for (int p = 0; p < candidate.step_count; ++p) {
    const Step& step = candidate.steps[p];
    result.all_us += step.predicted_us;
    if (p >= steps) continue;
    result.steps[p] = step;
    if (step.form != Form::kSingle && result.form != Form::kGroup) result.form = step.form;
    result.op_count = static_cast<uint16_t>(result.op_count + step.count);
  }
  result.tuned = 0;
  StepProblems::Begins next = problems_.begins();
  for (int i = 0; i < offer_.count(); ++i) {
    const int p = candidate.step_of[i];
    if (p >= steps) continue;
    const Step& step = candidate.steps[p];
    result.order[next[p]++] = static_cast<uint8_t>(i);
    result.tuned += step.form == Form::kSingle ? offer_.op(i).cost.tuned : step.tuned;
  }
}

void LaunchSplitter::KeepLists(std::span<const Work* const> works, const Site& site,
                               LaunchSplit& split) {
  const uint8_t* ops = split.order.data();
  for (Step& step : split.step_span()) {
    const bool listed = step.form == Form::kGroup && !step.rows;
    const bool kept = step.work_list != nullptr && step.work_list->version == step.list_version;
    if (listed && !kept) times_.CompileList(problems_.Lay(works, {ops, step.count}), site, step);
    ops += step.count;
  }
}

}  // namespace concert::policies
