#include "policies/auto/split/stream_candidates.h"

#include <algorithm>
#include <optional>

namespace concert::policies {

bool StreamCandidates::Grow() {
  const int limit = std::min(offer_.count(), times_.site().lane_limit);
  if (count_ == limit || (count_ >= 2 && serial_us_ > kMaxGroupUs)) return false;
  const int op = count_++;
  const OpCost& cost = offer_.op(op).cost;
  set_.Add(cost);
  serial_us_ += offer_.item(op).serial_us;
  wave_us_ = std::max(wave_us_, cost.wave_us);
  problems_[op] = Problem::Of(*offer_.op(op).work);
  return true;
}

bool StreamCandidates::Make(Candidate& candidate) const {
  const Site& site = times_.site();
  // One op alone is one beside what runs already.
  if (count_ < 2 && site.tails.empty()) return false;
  Step step;
  step.form = Form::kStreams;
  step.count = count_;
  step.serial_us = serial_us_;
  const std::optional<float> measured_us =
      times_.TunedUs({problems_.data(), count_}, Form::kStreams);
  step.tuned = measured_us.has_value();
  // Against groups half of a last wave that is not full is lost, as there, but behind others, since
  // more fills it.
  const bool fills = !offer_.may_group() || site.goal == GroupGoal::kThroughput;
  const auto added_us = static_cast<float>(fills ? 0 : wave_us_ / 2) + kSignalUs;
  const Arrangement arrangement = count_ > 1 ? Arrangement::kStreams : Arrangement::kSingle;
  const float ratio = times_.Ratio(arrangement);
  step.predicted_us = ratio * measured_us.value_or(static_cast<float>(set_.CoRunUs()) + added_us);
  if (step.predicted_us > step.serial_us) return false;  // rule 1
  candidate.step_count = 1;
  candidate.steps[0] = step;
  candidate.arrangement = arrangement;
  std::fill_n(candidate.step_of.begin(), count_, uint8_t{0});
  std::fill_n(candidate.step_of.begin() + count_, offer_.count() - count_, Candidate::kLater);
  if (Harms(offer_, candidate)) return false;
  // The rest will be planned as well as these.
  const float gain = GainBesideTails(step, added_us * ratio);
  const float all_us = (step.serial_us + LaterUs(offer_, candidate)) * gain;
  candidate.score_us = ScoreUs(offer_, all_us, kLibraryHostUs * static_cast<float>(offer_.count()));
  return true;
}

// What the set and the tails that none of its ops follows take side by side, as a share of what
// they take when it goes one by one behind them.
float StreamCandidates::GainBesideTails(const Step& step, float added_us) const {
  CoRunSet tails(times_.device()), all = set_;
  for (const Tail& tail : times_.site().tails) {
    if (tail.follower >= 0 && tail.follower < step.count) continue;
    tails.Add(tail.cost);
    all.Add(tail.cost);
  }
  if (tails.LongestUs() == 0) return step.predicted_us / step.serial_us;
  const float ratio = times_.Ratio(Arrangement::kStreams);
  const auto together_us = static_cast<float>(all.CoRunUs()) * ratio + added_us;
  const auto tails_us = static_cast<float>(tails.CoRunUs()) * times_.Ratio(Arrangement::kSingle);
  return together_us / (tails_us + step.serial_us);
}

}  // namespace concert::policies
