#include "policies/auto/contest.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "policies/cost/cost_model.h"

namespace concert::policies {

Way Contest::Next(const Snapshot& snapshot, bool apart) {
  if (apart) {
    Settle(way_, snapshot.now);
    return Way::kPredicted;
  }
  if (!window_.measuring) {
    if (Settled(snapshot)) Measure(snapshot);
  } else if (Over(snapshot.now)) {
    Close(snapshot);
  }
  return way_;
}

void Contest::Planned(const Snapshot& snapshot, const Effort& effort) {
  ++window_.plans;
  window_.effort.roofline_us += effort.roofline_us;
  if (static_cast<double>(snapshot.idle_ns) > kThinkUs * 1e3) window_.idle_ns += snapshot.idle_ns;
  if (2 * std::popcount(effort.weights & regime().weights) >= std::popcount(effort.weights)) {
    window_.effort.weights |= effort.weights;
    strangers_ = {};
    return;
  }
  strangers_.weights |= effort.weights;
  if (++strangers_.plans < kStrangePlans) return;
  FindRegime(strangers_.weights);
  strangers_ = {};
  Settle(Best(), snapshot.now);
}

double Contest::RunningUs(const Snapshot& snapshot) const {
  double sum_us = 0;
  for (const RunningOp& op : snapshot.running) {
    if (op.work.runs_on == RunsOn::kSms) sum_us += RooflineUs(device_, op.work);
  }
  return sum_us;
}

double Contest::ElapsedUs(Time now) const {
  return static_cast<double>(now - window_.since - window_.idle_ns) * 1e-3;
}

// Whether nothing runs any more that was planned in another way.
bool Contest::Settled(const Snapshot& snapshot) const {
  if (window_.plans >= kMaxSettlePlans) return true;
  return window_.plans >= window_.settle_plans &&
         std::all_of(snapshot.running.begin(), snapshot.running.end(),
                     [this](const RunningOp& op) { return op.launched_at >= window_.since; });
}

bool Contest::Over(Time now) const {
  const double elapsed_us = ElapsedUs(now);
  if (window_.plans >= kWindowPlans && elapsed_us >= kWindowUs) return true;
  const double most_us = window_.running_us + window_.effort.roofline_us;
  return window_.plans >= kSettlePlans && elapsed_us >= kHopelessUs &&
         elapsed_us > kHopeless * LeastMean() * most_us;
}

void Contest::Settle(Way way, Time now) {
  const bool first = MeasuredOf(way).weight == 0;
  way_ = way;
  window_ = {.since = now, .settle_plans = first ? kFirstSettlePlans : kSettlePlans};
}

void Contest::Measure(const Snapshot& snapshot) {
  window_ = {.measuring = true, .since = snapshot.now, .running_us = RunningUs(snapshot)};
}

void Contest::Close(const Snapshot& snapshot) {
  const double done_us = window_.running_us + window_.effort.roofline_us - RunningUs(snapshot);
  Regime& its = regime();
  its.weights = window_.effort.weights | its.weights_last;
  its.weights_last = window_.effort.weights;
  its.used = ++windows_;
  if (done_us > 0) Learn(ElapsedUs(snapshot.now) / done_us);
  const Way best = Best();
  if (best == way_) {
    Measure(snapshot);
  } else {
    Settle(best, snapshot.now);
  }
}

void Contest::Learn(double score) {
  score = std::min(score, kHopeless * LeastMean());
  Regime& its = regime();
  for (Measured& way : its.ways) way.weight *= kFade;
  Measured& way = MeasuredOf(way_);
  const bool off = way.weight > 1 && std::abs(score - way.mean) > kChanged * way.mean;
  its.off = off ? its.off + 1 : 0;
  if (its.off >= 2) {
    for (Measured& measured : its.ways) measured.weight = std::min(measured.weight, kLittle);
    its.off = 0;
  }
  way.weight = std::min(way.weight, kMaxWeight - 1) + 1;
  way.mean += (score - way.mean) / way.weight;
}

Way Contest::Best() const {
  Way best = way_;
  double least = IndexOf(way_) * (1 - kSwitchCost);
  for (int i = 0; i < kWayCount; ++i) {
    const double index = IndexOf(static_cast<Way>(i));
    if (index < least) least = index, best = static_cast<Way>(i);
  }
  return best;
}

// What its score might be: 0 if it was never measured.
double Contest::IndexOf(Way way) const {
  const Measured& measured = regime().ways[static_cast<int>(way)];
  if (measured.weight == 0) return 0;
  return std::max(0.0, measured.mean * (1 - kScatter / std::sqrt(measured.weight)));
}

double Contest::LeastMean() const {
  double least = std::numeric_limits<double>::infinity();
  for (const Measured& way : regime().ways) {
    if (way.weight > 0) least = std::min(least, way.mean);
  }
  return least;
}

// The one that knows most of these weights, if more than half of them; else a new one in place of
// the one that was longest not used.
void Contest::FindRegime(uint64_t weights) {
  const auto common = [&](int i) { return std::popcount(regimes_[i].weights & weights); };
  int most = 0, oldest = 0;
  for (int i = 1; i < kRegimes; ++i) {
    if (common(i) > common(most)) most = i;
    if (regimes_[i].used < regimes_[oldest].used) oldest = i;
  }
  if (2 * common(most) > std::popcount(weights)) {
    regime_ = most;
    return;
  }
  regime_ = oldest;
  regime() = {.weights = weights, .used = ++windows_};
  way_ = Way::kPredicted;
}

}  // namespace concert::policies
