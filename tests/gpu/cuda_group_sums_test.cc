// Split sums that are added as they come (SplitSums::kFastest): right within tolerance, time after
// time, since each launch must leave its workspace as it found it.
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/gpu/group_run.h"
#include "tests/support/seed.h"

namespace concert::test {
namespace {

// A node of its own beside the one that other tests share.
class GpuFastSumsTest : public GpuGroupTestBase {
 protected:
  static void SetUpTestSuite() {
    if (kEnvironment->node_ == nullptr) return;
    absl::StatusOr<std::unique_ptr<daemon::Node>> node =
        daemon::OpenCudaNode({.split_sums = kernels::SplitSums::kFastest});
    ASSERT_TRUE(node.ok()) << node.status();
    fast_node_ = *std::move(node);
  }
  static void TearDownTestSuite() { fast_node_.reset(); }

  daemon::Node& node() override { return *fast_node_; }

  static std::unique_ptr<daemon::Node> fast_node_;
  std::mt19937 random_{Seed()};
};
std::unique_ptr<daemon::Node> GpuFastSumsTest::fast_node_;

TEST_F(GpuFastSumsTest, AreRightTimeAfterTime) {
  const std::vector<GemmCase> cases = {{.m = 33, .n = 200, .k = 2048},
                                       {.m = 130, .n = 72, .k = 1024},
                                       {.m = 8, .n = 64, .k = 4096, .has_bias = true}};
  for (const GroupTile tile : AllTiles()) {
    GroupRuns runs;
    for (const GemmCase& shape : cases) {
      runs.emplace_back(device(), shape, Dtype::kBf16, Activation::kNone, random_);
    }
    const std::vector<const Op*> ops = OpsOf(runs);
    for (const uint32_t splits : {2, 8}) {
      SCOPED_TRACE("tile " + std::to_string(tile.w_rows) + "x" + std::to_string(tile.a_rows) +
                   ", splits " + std::to_string(splits) + ", seed " + std::to_string(Seed()));
      const HandList work_list(ProblemsOf(ops), tile, splits, 20);
      for (int i = 0; i < 4; ++i) {  // both workspaces of the lane, twice
        for (GemmRun& run : runs) run.Poison();
        LaunchAndWait(ops, &work_list.get());
        if (HasFatalFailure()) return;
        CheckAll(runs);
      }
    }
  }
  EXPECT_EQ(kernel_launches(), AllTiles().size() * 2 * 4);
}

}  // namespace
}  // namespace concert::test
