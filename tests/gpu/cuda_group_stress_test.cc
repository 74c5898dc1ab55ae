// Group launches back to back: those that follow from nothing, problems that are watched over by
// several blocks, and work lists of compilers that take turns.
#include <array>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/gpu/group_stress.h"

namespace concert::test {
namespace {

using daemon::TimelineWrite;
using kernels::GroupCompiler;
using policies::Form;

// Launches that follow from nothing unfinished. A group comes again when it is done, so up to as
// many as there are groups run or wait.
TEST_F(GpuGroupStressTest, IndependentLaunches) {
  SCOPED_TRACE("seed " + std::to_string(Seed()));
  constexpr size_t kGroups = 5;
  std::array<GroupRuns, kGroups> groups;
  std::array<std::vector<const Op*>, kGroups> ops;
  for (size_t g = 0; g < kGroups; ++g) {
    for (size_t i = 0; i < 3 + 4 * g; ++i) {
      const GemmCase shape = {.m = 1 + static_cast<uint32_t>(random_() % 150),
                              .n = 1 + static_cast<uint32_t>(random_() % 300),
                              .k = 8 + static_cast<uint32_t>(random_() % 500),
                              .aligned_rows = true};
      groups[g].emplace_back(device(), shape, Dtype::kBf16, Activation::kNone, random_);
    }
    ops[g] = OpsOf(groups[g]);
  }
  std::array<std::vector<TimelineWrite>, kGroups> writes;
  for (size_t g = 0; g < kGroups; ++g) {
    writes[g] = NextWrites(ops[g].size(), kFirstTimeline + static_cast<int>(g) * 32);
  }
  std::deque<std::vector<TimelineWrite>> unfinished;
  for (int i = 0; i < kStressLaunches; ++i) {
    const size_t g = static_cast<size_t>(i) % kGroups;
    Throttle(unfinished, writes[g], kGroups);
    if (HasFatalFailure()) return;
    ASSERT_OK(device().Launch({.planned = {.form = Form::kGroup,
                                           .lane = kLane,
                                           .work_list = Plan(ops[g], g == 2 ? 4 : 0)},
                               .ops = ops[g],
                               .writes = writes[g],
                               .inputs_ready = true,
                               .weights_ready = true}));
    for (TimelineWrite& write : writes[g]) ++write.value;
  }
  Finish(kLane);
  for (GroupRuns& runs : groups) CheckAll(runs);
  EXPECT_EQ(kernel_launches(), static_cast<uint64_t>(kStressLaunches));
}

// More problems of several tiles than there are SMs, on two lanes at once: blocks that watch over
// one leave it to the last block, and its timeline is written all the same.
TEST_F(GpuGroupStressTest, WatchedProblemsAreHandedOver) {
  SCOPED_TRACE("seed " + std::to_string(Seed()));
  constexpr int kTurns = 20;
  std::array<GroupRuns, 2> groups;
  std::array<std::vector<TimelineWrite>, 2> writes;
  for (const size_t lane : {0, 1}) {
    for (int i = 0; i < kernels::kMaxGroupProblems; ++i) {
      const GemmCase shape = {.m = 16, .n = 512, .k = i % 64 == 0 ? 4096u : 64u};
      groups[lane].emplace_back(device(), shape, Dtype::kBf16, Activation::kNone, random_);
    }
    writes[lane] = NextWrites(groups[lane].size(),
                              kFirstTimeline + static_cast<int>(lane) * kernels::kMaxGroupProblems);
  }
  std::deque<std::vector<TimelineWrite>> unfinished;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (const size_t lane : {0, 1}) {
      Throttle(unfinished, writes[lane], /*window=*/2);
      if (HasFatalFailure()) return;
      const std::vector<const Op*> ops = OpsOf(groups[lane]);
      ASSERT_OK(device().Launch({.planned = {.form = Form::kGroup,
                                             .lane = policies::kGroupLanes[lane],
                                             .work_list = Plan(ops)},
                                 .ops = ops,
                                 .writes = writes[lane]}));
      for (TimelineWrite& write : writes[lane]) ++write.value;
    }
  }
  for (const size_t lane : {0, 1}) {
    Finish(policies::kGroupLanes[lane]);
    for (const TimelineWrite& write : writes[lane]) {
      EXPECT_EQ(Timeline(IndexOf(write)), write.value - 1);
    }
    CheckAll(groups[lane]);
  }
}

// Each compiler's work lists lie in an arena of its own, at the same places.
TEST_F(GpuGroupStressTest, PlannersInTurn) {
  SCOPED_TRACE("seed " + std::to_string(Seed()));
  std::array<std::unique_ptr<GroupCompiler>, 2> compilers;
  std::array<GroupRuns, 2> groups;
  std::array<std::vector<const Op*>, 2> ops;
  std::array<const GroupWorkList*, 2> work_lists;
  for (size_t g = 0; g < 2; ++g) {
    compilers[g] = std::make_unique<GroupCompiler>(device().info().model);
    for (uint32_t i = 0; i < 6 + 5 * g; ++i) {
      const GemmCase shape = {
          .m = 20 + 30 * i, .n = 250 - 20 * i, .k = 64 + 40 * i, .aligned_rows = true};
      groups[g].emplace_back(device(), shape, Dtype::kBf16, Activation::kNone, random_);
    }
    ops[g] = OpsOf(groups[g]);
    work_lists[g] = compilers[g]->Compile(ProblemsOf(ops[g]), 0);
    ASSERT_NE(work_lists[g], nullptr);
  }
  std::array<std::vector<TimelineWrite>, 2> writes;
  for (size_t g = 0; g < 2; ++g) {
    writes[g] = NextWrites(ops[g].size(), kFirstTimeline + static_cast<int>(g) * 32);
  }
  std::deque<std::vector<TimelineWrite>> unfinished;
  for (int i = 0; i < kStressLaunches; ++i) {
    const auto g = static_cast<size_t>(i % 2);
    Throttle(unfinished, writes[g]);
    if (HasFatalFailure()) return;
    ASSERT_OK(device().Launch(
        {.planned = {.form = Form::kGroup, .lane = kLane, .work_list = work_lists[g]},
         .ops = ops[g],
         .writes = writes[g]}));
    for (TimelineWrite& write : writes[g]) ++write.value;
  }
  Finish(kLane);
  for (GroupRuns& runs : groups) CheckAll(runs);
  EXPECT_EQ(kernel_launches(), static_cast<uint64_t>(kStressLaunches));
}

}  // namespace
}  // namespace concert::test
