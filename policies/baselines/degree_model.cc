#include "policies/baselines/degree_model.h"

#include <algorithm>
#include <cmath>

namespace concert::policies {
namespace {

// A tile of the size that large GEMMs' kernels have; only its order of magnitude matters here.
constexpr uint64_t kTile = 128;
constexpr int kDepthFeature = kDegreeFeatures - 1;

double AtLeastOne(uint32_t value) { return std::max(1u, value); }

uint64_t CeilDiv(uint64_t value, uint64_t divisor) { return (value + divisor - 1) / divisor; }

double DepthFeature(int depth) { return std::log2(std::clamp(depth, 1, kMaxDegree)); }

}  // namespace

DegreeFeatures DegreeFeaturesOf(const Problem& problem, int sm_count, int depth) {
  const double m = AtLeastOne(problem.m), n = AtLeastOne(problem.n), k = AtLeastOne(problem.k);
  const double tiles = static_cast<double>(CeilDiv(static_cast<uint64_t>(m), kTile)) *
                       static_cast<double>(CeilDiv(static_cast<uint64_t>(n), kTile)) *
                       AtLeastOne(problem.batch);
  const double bytes = DtypeBytes(problem.dtype) * (m * k + n * k + m * n);
  const double flops = 2 * m * n * k;
  DegreeFeatures features = {std::log2(m), std::log2(n), std::log2(k), std::log2(tiles)};
  int next = 4;
  for (const int degree : kDegrees) {
    features[next++] = std::log2(std::ceil(tiles * degree / std::max(1, sm_count)));
  }
  features[next] = std::log2(bytes / flops);
  features[kDepthFeature] = DepthFeature(depth);
  return features;
}

DegreeScores ScoresOf(const DegreeModel& model, const DegreeFeatures& features) {
  DegreeScores scores = model.intercept;
  for (int f = 0; f < kDegreeFeatures; ++f) {
    const double scaled = (features[f] - model.mean[f]) / model.scale[f];
    for (size_t c = 0; c < scores.size(); ++c) scores[c] += model.coefficient[c][f] * scaled;
  }
  return scores;
}

DegreesByDepth PredictDegrees(const DegreeModel& model, const Problem& problem, int sm_count) {
  DegreesByDepth degrees;
  DegreeFeatures features = DegreeFeaturesOf(problem, sm_count, 1);
  for (int depth = 1; depth <= kMaxDegree; ++depth) {
    features[kDepthFeature] = DepthFeature(depth);
    const DegreeScores scores = ScoresOf(model, features);
    const auto best = std::max_element(scores.begin(), scores.end()) - scores.begin();
    degrees[depth - 1] = kDegrees[best];
  }
  return degrees;
}

}  // namespace concert::policies
