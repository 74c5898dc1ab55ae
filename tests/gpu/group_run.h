// Group launches on a GPU with the group kernel: planned, or with a work list made by hand.
#ifndef CONCERT_TESTS_GPU_GROUP_RUN_H_
#define CONCERT_TESTS_GPU_GROUP_RUN_H_

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/group/plan/compiler.h"
#include "tests/gpu/gemm_run.h"

namespace concert::test {

using kernels::GroupBlocks;
using kernels::GroupItem;
using kernels::GroupTile;
using kernels::GroupWorkList;
using policies::GroupGoal;
using policies::Problem;

inline std::vector<GroupTile> AllTiles() {
  std::vector<GroupTile> tiles(std::begin(kernels::kGroupTiles), std::end(kernels::kGroupTiles));
  tiles.insert(tiles.end(), std::begin(kernels::kGroupPairTiles),
               std::end(kernels::kGroupPairTiles));
  return tiles;
}

// The kinds of blocks that compute tiles of this shape.
inline std::vector<GroupBlocks> KindsFor(GroupTile tile) {
  if (kernels::BlocksPerTile(tile) == 2) return {GroupBlocks::kPairs};
  if (kernels::IsNarrow(tile)) return {GroupBlocks::kWide, GroupBlocks::kNarrow};
  return {GroupBlocks::kWide};
}

// A work list that cuts every problem into tiles of one shape and each tile into `splits` parts of
// K, dealt to `blocks` blocks, or pairs of them, in turn.
class HandList {
 public:
  HandList(std::span<const Problem> problems, GroupTile tile, uint32_t splits, uint32_t blocks)
      : HandList(problems, tile, splits, blocks, KindsFor(tile).front()) {}
  HandList(std::span<const Problem> problems, GroupTile tile, uint32_t splits, uint32_t blocks,
           GroupBlocks kind) {
    std::vector<GroupItem> items;
    for (size_t i = 0; i < problems.size(); ++i) AddProblem(problems[i], i, tile, splits, items);
    blocks = std::min<uint32_t>(blocks, items.size());
    const uint32_t steps = (items.size() + blocks - 1) / blocks + 1;
    GroupItem end = {};
    end.problem = GroupItem::kEnd;
    items.resize(steps * blocks, end);
    items_ = std::move(items);
    tiles_.assign(problems.size(), tile);
    work_list_.blocks = static_cast<uint16_t>(blocks);
    work_list_.problem_count = static_cast<uint16_t>(problems.size());
    work_list_.max_splits = static_cast<uint16_t>(splits);
    work_list_.kind = kind;
    work_list_.partial_bytes = splits > 1 ? tile.w_rows * tile.a_rows * sizeof(float) : 0;
    work_list_.item_count = static_cast<uint32_t>(items_.size());
    work_list_.items = items_.data();
    work_list_.tiles = tiles_.data();
    // A store of its own for every work list: always the first there.
    static uint64_t stores = 0;
    work_list_.id = ((kFirstStore + stores++) << kernels::kGroupStoreShift) + 1;
  }
  HandList(const HandList&) = delete;
  HandList& operator=(const HandList&) = delete;

  const GroupWorkList& get() const { return work_list_; }

 private:
  static constexpr uint64_t kFirstStore = 1 << 23;  // far above those of compilers

  static uint8_t TailOf(const Problem& problem, GroupTile tile, uint32_t a_tile) {
    const bool pairs = kernels::BlocksPerTile(tile) == 2;
    const std::span<const GroupTile> tiles =
        pairs ? std::span<const GroupTile>(kernels::kGroupPairTiles) : kernels::kGroupTiles;
    const int rows = kernels::TailRows(tiles, tile, problem.m);
    const bool last = (a_tile + 1) * tile.a_rows >= problem.m;
    return static_cast<uint8_t>(last && rows < tile.a_rows ? rows / 16 : 0);
  }
  void AddProblem(const Problem& problem, size_t index, GroupTile tile, uint32_t splits,
                  std::vector<GroupItem>& items) {
    const uint32_t k_bytes = problem.k * policies::DtypeBytes(problem.dtype);
    const uint32_t k_blocks = (k_bytes + kernels::kGroupBlockKBytes - 1) /
                              static_cast<uint32_t>(kernels::kGroupBlockKBytes);
    for (uint32_t a = 0; a * tile.a_rows < problem.m; ++a) {
      for (uint32_t w = 0; w * tile.w_rows < problem.n; ++w) {
        for (uint32_t split = 0; split < splits; ++split) {
          items.push_back({.problem = static_cast<uint16_t>(index),
                           .w_rows_div_64 = static_cast<uint8_t>(tile.w_rows / 64),
                           .tail_rows_div_16 = TailOf(problem, tile, a),
                           .a_rows_div_16 = static_cast<uint8_t>(tile.a_rows / 16),
                           .w_tile = static_cast<uint16_t>(w),
                           .a_tile = static_cast<uint16_t>(a),
                           .k_begin = static_cast<uint16_t>(k_blocks * split / splits),
                           .k_end = static_cast<uint16_t>(k_blocks * (split + 1) / splits),
                           .splits = static_cast<uint8_t>(splits),
                           .split = static_cast<uint8_t>(split),
                           .split_tile = splits > 1 ? work_list_.split_tiles : uint16_t{0}});
        }
        if (splits > 1) ++work_list_.split_tiles;
      }
    }
  }

  std::vector<GroupItem> items_;
  std::vector<GroupTile> tiles_;
  GroupWorkList work_list_;
};

// GEMMs launched together, each with its operands and its reference.
using GroupRuns = std::deque<GemmRun>;

class GpuGroupTestBase : public GpuTest {
 protected:
  // Timelines that no other test uses: one per problem of a launch, and as many again.
  static constexpr int kFirstTimeline = 512;
  static constexpr int kTimelines = 2 * kernels::kMaxGroupProblems;
  static constexpr policies::Lane kLane = policies::kGroupLanes[0];

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (!device().info().model.group_kernel) GTEST_SKIP() << "this GPU has no group kernel";
    compiler_ = std::make_unique<kernels::GroupCompiler>(device().info().model);
    kernel_launches_before_ = device().group_launches();
  }

  static std::vector<const Op*> OpsOf(const GroupRuns& runs) {
    std::vector<const Op*> ops;
    for (const GemmRun& run : runs) ops.push_back(&run.op());
    return ops;
  }
  static std::vector<Problem> ProblemsOf(std::span<const Op* const> ops) {
    std::vector<Problem> problems;
    for (const Op* op : ops) problems.push_back(Problem::Of(op->work));
    return problems;
  }
  const GroupWorkList* Plan(std::span<const Op* const> ops, int budget = 0,
                            GroupGoal goal = GroupGoal::kLatency) {
    compiler_->Reclaim();
    const GroupWorkList* work_list = compiler_->Compile(ProblemsOf(ops), budget, goal);
    EXPECT_NE(work_list, nullptr);
    return work_list;
  }

  // Adds the next value of timeline first + i for every op.
  std::vector<daemon::TimelineWrite> NextWrites(size_t count, int first = kFirstTimeline) const {
    std::vector<daemon::TimelineWrite> writes;
    for (size_t i = 0; i < count; ++i) {
      const int index = first + static_cast<int>(i);
      writes.push_back({TimelineAddress(index), Timeline(index) + 1});
    }
    return writes;
  }

  // One launch that may start at once; returns when every problem has written its timeline.
  void LaunchAndWait(std::span<const Op* const> ops, const GroupWorkList* work_list, int budget = 0,
                     policies::Lane lane = kLane) {
    const std::vector<daemon::TimelineWrite> writes = NextWrites(ops.size());
    ASSERT_OK(device().Launch({.planned = {.form = policies::Form::kGroup,
                                           .lane = lane,
                                           .sm_budget = budget,
                                           .work_list = work_list},
                               .ops = ops,
                               .writes = writes,
                               .inputs_ready = true,
                               .weights_ready = true}));
    for (size_t i = 0; i < ops.size(); ++i) {
      const int index = kFirstTimeline + static_cast<int>(i);
      ASSERT_TRUE(WaitFor(index, writes[i].value)) << "problem " << i << ", " << device().healthy();
      EXPECT_EQ(Timeline(index), writes[i].value) << "problem " << i;
    }
  }

  void CheckAll(GroupRuns& runs) {
    for (size_t i = 0; i < runs.size(); ++i) {
      SCOPED_TRACE("problem " + std::to_string(i));
      runs[i].Check();
    }
  }

  // Launches that went to the group kernel since the test began.
  uint64_t kernel_launches() { return device().group_launches() - kernel_launches_before_; }

  std::unique_ptr<kernels::GroupCompiler> compiler_;

 private:
  uint64_t kernel_launches_before_ = 0;
};

}  // namespace concert::test

#endif  // CONCERT_TESTS_GPU_GROUP_RUN_H_
