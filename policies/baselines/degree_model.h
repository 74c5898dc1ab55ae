// Predicts a GEMM's concurrency degree, i.e. how many GEMMs like it should run side by side, by a
// multinomial logistic regression: GOLDYLOC's predictor (arXiv 2409.02227). The features are ours,
// as the paper's are not published in detail. Models are data written by
// policies/training/train_degree.py, which computes the same features.
#ifndef CONCERT_POLICIES_BASELINES_DEGREE_MODEL_H_
#define CONCERT_POLICIES_BASELINES_DEGREE_MODEL_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "policies/cost/tuned_table.h"

namespace concert::policies {

inline constexpr std::array<uint8_t, 4> kDegrees = {1, 2, 4, 8};
inline constexpr int kMaxDegree = 8;

// In order: log2 of m, n, k, tiles of 128x128, waves of those tiles on 1/1, 1/2, 1/4 and 1/8 of the
// SMs, bytes per FLOP, and queue depth. Sizes of 0 count as 1.
inline constexpr int kDegreeFeatures = 10;
using DegreeFeatures = std::array<double, kDegreeFeatures>;
using DegreeScores = std::array<double, kDegrees.size()>;

struct DegreeModel {
  // Where it comes from, for people.
  std::string_view gpu;
  std::string_view date;    // of the training
  std::string_view source;  // sha256 of the training data, in hexadecimal
  int shapes = 0;           // trained on
  int samples = 0;          // shapes x queue depths
  // Leave-one-shape-out: share of samples whose degree is the labelled one, and by how much the
  // time at the chosen degree exceeds that at the best one.
  double cv_accuracy = 0;
  double cv_mean_loss = 0;

  // score[c] = intercept[c] + sum of coefficient[c][f] * (feature[f] - mean[f]) / scale[f]
  DegreeFeatures mean{};
  DegreeFeatures scale{};  // none is 0
  DegreeScores intercept{};
  std::array<DegreeFeatures, kDegrees.size()> coefficient{};
};

// `depth`: GEMMs that could run side by side now, this one included; at least 1. More than
// kMaxDegree count as kMaxDegree: the model has seen no more.
DegreeFeatures DegreeFeaturesOf(const Problem& problem, int sm_count, int depth);

// The larger, the better the degree; softmax makes them probabilities.
DegreeScores ScoresOf(const DegreeModel& model, const DegreeFeatures& features);

// [d - 1]: the degree predicted for queue depth d. Also a degree that the depth does not allow is
// given back as it is.
using DegreesByDepth = std::array<uint8_t, kMaxDegree>;
DegreesByDepth PredictDegrees(const DegreeModel& model, const Problem& problem, int sm_count);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_BASELINES_DEGREE_MODEL_H_
