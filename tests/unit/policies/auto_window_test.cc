// What `auto` makes of the resources in use.
#include <gtest/gtest.h>

#include "policies/cost/cost_model.h"
#include "tests/unit/policies/auto_fixture.h"

namespace concert::policies::auto_test {
namespace {

// A collective holds SMs as GEMMs do.
TEST_F(AutoTest, LibraryKernelsOfALowerClassLeaveRoomForWhateverRuns) {
  const Work little = Gemm(16, 512, 512), most = Groupable(1024, 1792, 4096);
  const DeviceModel device;
  ASSERT_LE(CostOf(device, little).sm_share + CostOf(device, most).sm_share, 1);
  ASSERT_GT(CostOf(device, little).sm_share + CostOf(device, most).sm_share +
                CostOf(device, AllReduce(1 << 20)).sm_share,
            1);
  scene_.Running(most, kFirstHighLane, Priority::kHigh).Ready(little);
  EXPECT_EQ(Decide().op_count, 1);
  scene_.Running(AllReduce(1 << 20), kHighCollectiveLane);
  EXPECT_TRUE(Decide().empty());
  // Behind what runs on the lane it is not in use yet.
  scene_.running.pop_back();
  scene_.Running(kLarge, kFirstHighLane, Priority::kHigh);
  scene_.running.back().expected_end += 200'000;
  EXPECT_EQ(Decide().op_count, 1);
}

}  // namespace
}  // namespace concert::policies::auto_test
