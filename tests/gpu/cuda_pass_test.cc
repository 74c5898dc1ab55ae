// Passes on a GPU: programs over the same weights in one graph, against the CPU references of their
// ops.
#include <random>
#include <vector>

#include "tests/gpu/pass_fixture.h"
#include "tests/support/seed.h"

namespace concert::test {
namespace {

ModelShape SmallShape() {
  return {.hidden = 512,
          .q_heads = 8,
          .kv_heads = 2,
          .ffn = 1088,
          .layers = 2,
          .contexts = {100, 0, 15, kPaddingRow, 700, 1, 16, 63},
          .steps = 6};
}

// Who takes part changes from launch to launch, so that members are at different steps.
TEST_F(GpuPassTest, MembersGetWhatTheyGetAloneWhoeverTakesPart) {
  constexpr uint32_t kMembers = 8;
  std::mt19937 random(test::Seed());
  SCOPED_TRACE("seed " + std::to_string(test::Seed()));
  const ModelStep model(SmallShape(), random());
  for (uint32_t m = 0; m < kMembers; ++m) ASSERT_NO_FATAL_FAILURE(MakeMember(model));
  ASSERT_NO_FATAL_FAILURE(MakePass());
  steps_.resize(kMembers);
  for (uint32_t launch = 0; launch < 12; ++launch) {
    std::vector<uint32_t> members;
    for (uint32_t m = 0; m < kMembers; ++m) {
      if (steps_[m] < model.shape().steps && random() % 3 != 0) members.push_back(m);
    }
    if (members.empty()) continue;
    ASSERT_NO_FATAL_FAILURE(Launch(members));
  }
  ASSERT_NO_FATAL_FAILURE(Finish(kLane));
  ASSERT_OK(device().healthy());
  CheckMembers();
}

// Alone, by whatever engine, and in the pass, in turn.
TEST_F(GpuPassTest, RunsAloneAndTogetherFollowOneAnother) {
  const ModelStep model(SmallShape(), 5);
  for (uint32_t m = 0; m < 2; ++m) ASSERT_NO_FATAL_FAILURE(MakeMember(model));
  ASSERT_NO_FATAL_FAILURE(MakePass());
  ASSERT_NO_FATAL_FAILURE(Launch({0, 1}));
  for (uint32_t turn = 0; turn < 2; ++turn) {
    ASSERT_OK(members_[1]->Launch(kLane, /*sm_budget=*/0, steps_[1]++));
    ASSERT_NO_FATAL_FAILURE(Launch({1, 0}));
  }
  ASSERT_NO_FATAL_FAILURE(Finish(kLane));
  CheckMembers();
}

// Pages that the second's tables name are none of the first's cache.
TEST_F(GpuPassTest, MembersWhoseCachesDifferInPages) {
  constexpr uint32_t kSeed = 6;
  ModelShape larger = SmallShape();
  larger.free_pages = 1000;
  const ModelStep model(SmallShape(), kSeed), other(larger, kSeed);
  ASSERT_NO_FATAL_FAILURE(MakeMember(model));
  ASSERT_NO_FATAL_FAILURE(MakeMember(other));
  ASSERT_NO_FATAL_FAILURE(MakePass());
  steps_.resize(members_.size());
  while (steps_[0] < model.shape().steps) ASSERT_NO_FATAL_FAILURE(Launch({0, 1}));
  ASSERT_NO_FATAL_FAILURE(Finish(kLane));
  CheckMembers();
}

}  // namespace
}  // namespace concert::test
