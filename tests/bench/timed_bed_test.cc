#include "tests/bench/timed_bed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace concert::bench {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

constexpr HostCosts kCosts{.turn = 1,
                           .admit_op = 2,
                           .launch = 10,
                           .launch_op = 3,
                           .finish_op = 0,
                           .group_call = 50,
                           .library_call = 20,
                           .to_start = 30,
                           .to_visible = 4};

// A GEMM that takes no longer than any kernel does.
std::vector<double> EndsUs(TimedBed& timed) {
  std::vector<double> ends_us;
  timed.gpu().set_on_end([&](double us) {
    if (timed.bed().timeline(0) == 1) ends_us.push_back(us);
  });
  timed.bed().Submit(std::vector<GemmShape>{{16, 16, 16}}, 0, 0);
  while (timed.bed().timeline(0) == 0) timed.Turn();
  return ends_us;
}

TEST(TimedBedTest, AnOpTakesWhatHostAndGpuTakeOfIt) {
  TimedBed timed(kCosts, "serial", {}, 1);
  const double called_us = 1 + 2 + 10 + 3 + 20, run_us = policies::DeviceModel{}.kernel_floor_us;
  EXPECT_THAT(EndsUs(timed), ElementsAre(DoubleNear(called_us + 30 + run_us + 4, 1e-3)));
}

TEST(TimedBedTest, AGroupLaunchCostsOneCall) {
  TimedBed timed(kCosts, "group", {}, 1);
  const double run_us = policies::DeviceModel{}.kernel_floor_us;
  EXPECT_THAT(EndsUs(timed), ElementsAre(DoubleNear(1 + 2 + 10 + 3 + 50 + 30 + run_us + 4, 1e-3)));
}

}  // namespace
}  // namespace concert::bench
