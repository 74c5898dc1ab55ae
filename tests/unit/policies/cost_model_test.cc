#include "policies/cost/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/unit/policies/measured_groups.h"
#include "tests/unit/policies/works.h"

namespace concert::policies {
namespace {

struct Prediction {
  double serial_us = 0;
  double streams_us = 0;
};

Prediction Predict(const MeasuredGroup& group) {
  const DeviceModel h200;
  CoRunSet set(h200);
  for (const MeasuredGemm& gemm : group.gemms) {
    for (int i = 0; i < gemm.count; ++i) {
      set.Add(CostOf(h200, Gemm(gemm.m, gemm.n, gemm.k)));
    }
  }
  return {set.SerialUs(), set.CoRunUs()};
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

TEST(CostModelTest, PredictsMeasuredGroups) {
  std::vector<double> serial_errors, streams_errors;
  int right = 0;
  for (const MeasuredGroup& group : MeasuredGroups()) {
    const Prediction predicted = Predict(group);
    serial_errors.push_back(std::abs(predicted.serial_us / group.serial_us - 1));
    streams_errors.push_back(std::abs(predicted.streams_us / group.streams_us - 1));
    right += (predicted.streams_us < predicted.serial_us) == (group.streams_us < group.serial_us);
    EXPECT_LT(serial_errors.back(), 0.25) << group.name << " serial " << predicted.serial_us;
    EXPECT_LT(streams_errors.back(), 0.50) << group.name << " streams " << predicted.streams_us;
  }
  RecordProperty("serial_median_error_percent", static_cast<int>(100 * Median(serial_errors)));
  RecordProperty("streams_median_error_percent", static_cast<int>(100 * Median(streams_errors)));
  EXPECT_LT(Median(serial_errors), 0.06);
  EXPECT_LT(Median(streams_errors), 0.09);
  EXPECT_GE(right, 0.93 * static_cast<double>(MeasuredGroups().size()));
}

// Whether it is their length or where they lie: measured 30 against 7 us.
TEST(CostModelTest, UnalignedRowsAreSlow) {
  const DeviceModel device;
  const double aligned_us = SoloUs(device, Gemm(2048, 1024, 480));
  EXPECT_GT(SoloUs(device, Gemm(2048, 1024, 479)), 2 * aligned_us);
  EXPECT_GT(SoloUs(device, Unaligned(2048, 1024, 480)), 2 * aligned_us);
}

TEST(CostModelTest, SoloIsNeverBelowTheRoofline) {
  const DeviceModel device;
  for (const uint32_t m : {1u, 16u, 100u, 1000u, 8192u}) {
    for (const uint32_t n : {1u, 64u, 1408u, 8192u}) {
      for (const uint32_t k : {1u, 64u, 479u, 8192u}) {
        const Work work = Gemm(m, n, k);
        EXPECT_GE(SoloUs(device, work), RooflineUs(device, work) + device.kernel_floor_us);
      }
    }
  }
}

TEST(CostModelTest, FewerSmsAreSlowerForAFullGpuButNotForASmallGemm) {
  const DeviceModel device;
  const Work large = Gemm(8192, 8192, 8192);
  EXPECT_NEAR(SoloUs(device, large, 66) / SoloUs(device, large), 2, 0.2);
  const Work small = Gemm(16, 1024, 1024);
  EXPECT_DOUBLE_EQ(SoloUs(device, small, 66), SoloUs(device, small));
}

TEST(CostModelTest, Fp8TakesAboutHalfTheTimeOfBf16) {
  const DeviceModel device;
  Work work = Gemm(8192, 8192, 8192);
  const double bf16_us = SoloUs(device, work), bf16_roofline_us = RooflineUs(device, work);
  work.dtype = Dtype::kFp8E4m3;
  EXPECT_NEAR(RooflineUs(device, work), bf16_roofline_us / 2, 0.01 * bf16_roofline_us);
  EXPECT_NEAR(SoloUs(device, work), bf16_us / (2 * device.costs.fp8_share), 0.05 * bf16_us);
  // 16 bytes are 16 elements: what is a whole row in bf16 need not be one in fp8.
  Work ragged = Gemm(256, 4096, 4104);
  const double aligned_us = SoloUs(device, ragged);
  ragged.dtype = Dtype::kFp8E4m3;
  EXPECT_GT(SoloUs(device, ragged), aligned_us);
}

TEST(CostModelTest, RowsTakeAsLongAsTheirBytesOrTheirFlops) {
  const DeviceModel device;
  Work rows = Rows(1000, 4096);
  const double bytes_us = SoloUs(device, rows);
  rows.flops = 1;
  EXPECT_DOUBLE_EQ(SoloUs(device, rows), bytes_us);
  rows.flops = static_cast<uint64_t>(device.tensor_flops * 1e-3);
  EXPECT_NEAR(SoloUs(device, rows), 1000, 10);
  EXPECT_NEAR(SoloUs(device, rows, device.sm_count / 2), 2000, 10);
  rows.flops_share = 0.5;
  EXPECT_NEAR(SoloUs(device, rows), 2000, 10);
}

TEST(CostModelTest, ExtremeSizesStayFinite) {
  const DeviceModel device;
  constexpr uint32_t kMax = std::numeric_limits<uint32_t>::max();
  Work huge = Gemm(1, 1, 1);
  huge.m = huge.n = huge.k = huge.batch = kMax;
  huge.flops = huge.hbm_bytes = std::numeric_limits<uint64_t>::max();
  EXPECT_TRUE(std::isfinite(SoloUs(device, huge)));
  Work empty = Gemm(0, 0, 0);
  EXPECT_GE(SoloUs(device, empty), device.kernel_floor_us);
}

TEST(CostModelTest, SetOfOneIsSolo) {
  const DeviceModel device;
  const Work work = Gemm(64, 4096, 4096);
  const Work* const works[] = {&work};
  EXPECT_DOUBLE_EQ(CoRunUs(device, works), SoloUs(device, work));
}

TEST(CostModelTest, CollectiveIsLatencyPlusLinkTime) {
  const DeviceModel device;
  EXPECT_NEAR(SoloUs(device, AllReduce(1024)), device.collective_floor_us, 0.1);
  EXPECT_NEAR(SoloUs(device, AllReduce(256 << 20)),
              device.collective_floor_us + 1e6 * (256 << 20) / device.link_bytes_per_s, 1);
}

TEST(CostModelTest, CollectiveHidesBesideAGemm) {
  const DeviceModel device;
  const Work gemm = Gemm(8192, 8192, 8192), collective = AllReduce(64 << 20);
  const Work* const works[] = {&gemm, &collective};
  EXPECT_LT(CoRunUs(device, works), 0.95 * (SoloUs(device, gemm) + SoloUs(device, collective)));
  EXPECT_GE(CoRunUs(device, works), SoloUs(device, gemm));
}

}  // namespace
}  // namespace concert::policies
