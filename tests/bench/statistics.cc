#include "tests/bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace concert::bench {

double Quantile(std::span<const double> samples, double q) {
  if (samples.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const double position = std::clamp(q, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (position - static_cast<double>(below));
}

double GeometricMean(std::span<const double> samples) {
  if (samples.empty()) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (double sample : samples) sum += std::log(sample);
  return std::exp(sum / static_cast<double>(samples.size()));
}

void PairedBlocks::Add(std::vector<double> baseline, std::vector<double> candidate) {
  all_baseline_.insert(all_baseline_.end(), baseline.begin(), baseline.end());
  all_candidate_.insert(all_candidate_.end(), candidate.begin(), candidate.end());
  blocks_.push_back({std::move(baseline), std::move(candidate)});
}

double PairedBlocks::BlockDifference(double q) const {
  std::vector<double> differences;
  for (const Block& block : blocks_) {
    differences.push_back(Quantile(block.candidate, q) - Quantile(block.baseline, q));
  }
  return Quantile(differences, 0.5);
}

}  // namespace concert::bench
