#include "daemon/tuning/halving.h"

#include <gtest/gtest.h>

#include <map>

namespace concert::daemon {
namespace {

TEST(HalvingTest, TheBestGetsTheSamplesAndTheDefaultStaysToTheEnd) {
  std::map<size_t, int> samples_of;
  const auto finalists = Halve(32, [&](size_t candidate, int samples) {
    samples_of[candidate] += samples;
    // 20 is the best; the default is the worst that is not hopeless.
    const float us =
        candidate == 0 ? 19.0f : 10.0f + std::abs(20.0f - static_cast<float>(candidate)) * 0.2f;
    return absl::StatusOr<Measurement>(Measurement{us, us, us});
  });
  ASSERT_TRUE(finalists.ok());
  ASSERT_EQ(finalists->size(), 3u);
  EXPECT_EQ(finalists->front().candidate, 20u);
  EXPECT_EQ(finalists->back().candidate, 0u);
  EXPECT_EQ(samples_of.size(), 32u);
  EXPECT_EQ(samples_of[1], kFirstSamples);
  EXPECT_GT(samples_of[20], kFinalSamples);
  int total = 0;
  for (const auto& [candidate, samples] : samples_of) total += samples;
  EXPECT_LT(total, 32 * kFinalSamples);
}

TEST(HalvingTest, WhatCannotRunIsOutAndADeviceFailureEndsItAll) {
  const auto only_three = Halve(8, [](size_t candidate, int) -> absl::StatusOr<Measurement> {
    if (candidate != 3) return absl::InvalidArgumentError("cannot run");
    return Measurement{1, 1, 1};
  });
  ASSERT_TRUE(only_three.ok());
  EXPECT_EQ(only_three->size(), 1u);
  EXPECT_EQ(only_three->front().candidate, 3u);
  const auto none = [](size_t, int) -> absl::StatusOr<Measurement> {
    return absl::InvalidArgumentError("cannot run");
  };
  EXPECT_TRUE(absl::IsNotFound(Halve(8, none).status()));
  EXPECT_TRUE(absl::IsNotFound(Halve(0, none).status()));
  EXPECT_TRUE(absl::IsInternal(Halve(8, [](size_t, int) -> absl::StatusOr<Measurement> {
                                 return absl::InternalError("the GPU faulted");
                               }).status()));
}

}  // namespace
}  // namespace concert::daemon
