// Launches that follow one another: what a choice for ready GEMMs of one class comes to.
#ifndef CONCERT_POLICIES_AUTO_SPLIT_LAUNCH_SPLIT_H_
#define CONCERT_POLICIES_AUTO_SPLIT_LAUNCH_SPLIT_H_

#include <array>
#include <cstdint>
#include <numeric>
#include <span>

#include "policies/seam/form.h"
#include "policies/seam/plan.h"

namespace concert::policies {

// Ops that go out together: one launch, or for kStreams one for each op. Its predicted time is from
// its start to its end.
struct Step : PlannedLaunch {
  float serial_us = 0;        // its ops one after the other
  uint64_t repack_bytes = 0;  // kGroup: Work::repack_bytes of its ops
  bool tuned = false;         // kGroup, kStreams: predicted_us was measured
  bool rows = false;          // its ops are row ops: in one launch, without a work list
  uint32_t list_version = 0;  // of work_list, when it was the step's

  int launches() const { return form == Form::kStreams ? count : 1; }
};

// Steps follow one another. Within a step ops keep the order in which they were offered.
struct LaunchSplit {
  static constexpr int kMaxSteps = Plan::kMaxLaunches;

  std::array<Step, kMaxSteps> steps;
  // The ops of the first step, then of the next, by their place among those offered. What is not
  // here is left for a later plan.
  std::array<uint8_t, kMaxReady> order;
  static_assert(kMaxReady - 1 <= UINT8_MAX);
  uint16_t op_count = 0;
  uint8_t step_count = 0;
  uint16_t tuned = 0;         // ops whose predicted time was measured
  Form form = Form::kSingle;  // that of most interest: group, else streams, else single
  Arrangement arrangement = Arrangement::kSingle;  // what its outcomes teach about
  float all_us = 0;  // of all ops offered, those for a later plan included
  // With which measured times it was chosen: their hash, and the number of the table.
  uint64_t times_hash = 0;
  uint32_t table = 0;

  std::span<Step> step_span() { return {steps.data(), step_count}; }
  std::span<const Step> step_span() const { return {steps.data(), step_count}; }
  float PredictedUs() const {
    return std::accumulate(steps.begin(), steps.begin() + step_count, 0.0f,
                           [](float sum, const Step& step) { return sum + step.predicted_us; });
  }
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_SPLIT_LAUNCH_SPLIT_H_
