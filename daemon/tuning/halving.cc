#include "daemon/tuning/halving.h"

#include <algorithm>
#include <numeric>

namespace concert::daemon {
namespace {

// Kernels so far behind after the first samples are not noise.
constexpr float kHopeless = 2.0f;

using MeasureFunction = std::function<absl::StatusOr<Measurement>(size_t candidate, int samples)>;

// Those of `candidates` that can run, fastest first.
absl::StatusOr<std::vector<Finalist>> Round(const std::vector<size_t>& candidates, int samples,
                                            const MeasureFunction& measure) {
  std::vector<Finalist> results;
  for (const size_t candidate : candidates) {
    const absl::StatusOr<Measurement> measurement = measure(candidate, samples);
    if (measurement.ok()) {
      results.push_back({candidate, *measurement});
    } else if (!absl::IsInvalidArgument(measurement.status())) {
      return measurement.status();
    }
  }
  if (results.empty()) return absl::NotFoundError("no candidate can run");
  // Stable: of equals the earlier one, which the heuristic prefers.
  std::stable_sort(results.begin(), results.end(), [](const Finalist& a, const Finalist& b) {
    return a.measurement.median_us < b.measurement.median_us;
  });
  return results;
}

// The first `keep` that are not hopeless, and the default wherever it stands.
std::vector<size_t> Survivors(const std::vector<Finalist>& results, size_t keep) {
  std::vector<size_t> survivors;
  for (size_t i = 0; i < results.size(); ++i) {
    const bool good = i < keep && results[i].measurement.median_us <=
                                      kHopeless * results.front().measurement.median_us;
    if (good || results[i].candidate == 0) survivors.push_back(results[i].candidate);
  }
  return survivors;
}

}  // namespace

absl::StatusOr<std::vector<Finalist>> Halve(size_t count, const MeasureFunction& measure) {
  std::vector<size_t> candidates(count);
  std::iota(candidates.begin(), candidates.end(), size_t{0});
  for (int samples = kFirstSamples; candidates.size() > kFinalists + 1; samples *= 2) {
    const absl::StatusOr<std::vector<Finalist>> results =
        Round(candidates, std::min(samples, kFinalSamples), measure);
    if (!results.ok()) return results.status();
    candidates = Survivors(*results, std::max<size_t>(results->size() / 2, kFinalists));
  }
  return Round(candidates, kFinalSamples, measure);
}

}  // namespace concert::daemon
