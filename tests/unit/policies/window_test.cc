// What policies pull of the queues behind ready ops.
#include "policies/seam/window.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/policies/works.h"

namespace concert::policies {
namespace {

std::vector<uint32_t> RowsOfFollowers(const Scene& scene, int ready_index) {
  std::vector<uint32_t> rows;
  for (const QueuedOp& op : FollowersOf(scene.Get(), scene.ready[ready_index])) {
    rows.push_back(op.work->m);
  }
  return rows;
}

TEST(WindowTest, FollowersAreThoseOfTheOpsOwnQueue) {
  Scene scene;
  scene.Ready(Gemm(1, 8, 8)).Then(Gemm(2, 8, 8)).Then(Gemm(3, 8, 8));
  scene.Ready(Gemm(4, 8, 8)).Then(Gemm(5, 8, 8)).Ready(Gemm(6, 8, 8));
  EXPECT_EQ(RowsOfFollowers(scene, 0), (std::vector<uint32_t>{2, 3}));
  EXPECT_EQ(RowsOfFollowers(scene, 1), (std::vector<uint32_t>{5}));
  EXPECT_TRUE(RowsOfFollowers(scene, 2).empty());
}

TEST(WindowTest, ReachesNoFurtherThanItsBound) {
  Scene scene;
  scene.Ready(Gemm(1, 8, 8));
  for (int i = 0; i < 2 * kMaxFollowers; ++i) scene.Then(Gemm(2, 8, 8));
  EXPECT_EQ(RowsOfFollowers(scene, 0).size(), size_t{kMaxFollowers});
}

TEST(WindowTest, WhereNobodyKnowsThereAreNone) {
  const ReadyOp op{.op = 1, .session = 1, .work = {}};
  const Followers followers = FollowersOf(Snapshot(), op);
  EXPECT_TRUE(followers.begin() == followers.end());
}

}  // namespace
}  // namespace concert::policies
