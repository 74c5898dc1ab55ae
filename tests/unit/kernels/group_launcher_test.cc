// What the group launcher enqueues, on a driver that runs nothing.
#include "kernels/group/group_launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/group/plan/compiler.h"
#include "kernels/rows/row_args.h"
#include "kernels/rows/row_ops.h"
#include "tests/support/idle_driver.h"

namespace concert::kernels::cuda {
namespace {

using kernels::GroupCompiler;
using policies::Problem;
using testing::ElementsAre;

// What one stream was told: "upload", "repack", "group", or "group beside" if it may overlap what
// is before it.
struct Enqueued {
  std::string what;
  CUstream stream;
};

struct Log {
  std::vector<Enqueued> enqueued;
  std::vector<RepackArgs> repacks;
  std::vector<std::pair<uint64_t, uint64_t>> maps;  // address, row stride in bytes
  std::vector<RowArgs> rows;
  GroupArgs group;  // of the last launch
  uint64_t allocated = uint64_t{1} << 40;
} g_log;

CUfunction Function(uintptr_t id) { return reinterpret_cast<CUfunction>(id); }
constexpr uintptr_t kRepackFunction = 100, kRowsFunction = 101;  // group kernels come before
unsigned BlocksOf(const RowArgs& args) {
  unsigned blocks = 0;
  for (int i = 0; i < args.task_count; ++i) blocks += args.tasks[i].blocks;
  return blocks;
}
CUstream StreamOf(int track) { return reinterpret_cast<CUstream>(uintptr_t{10} + track); }

// Keeps a log of what is asked of it.
Driver LoggingDriver() {
  Driver driver = test::IdleDriver();
  driver.cuMemAlloc = [](CUdeviceptr* address, size_t bytes) {
    *address = g_log.allocated;
    g_log.allocated += (bytes + 0xffff) & ~size_t{0xffff};
    return CUDA_SUCCESS;
  };
  driver.cuMemcpyHtoDAsync = [](CUdeviceptr, const void*, size_t, CUstream stream) {
    g_log.enqueued.push_back({"upload", stream});
    return CUDA_SUCCESS;
  };
  driver.cuTensorMapEncodeTiled = [](CUtensorMap*, CUtensorMapDataType, cuuint32_t, void* address,
                                     const cuuint64_t*, const cuuint64_t* strides, auto...) {
    g_log.maps.emplace_back(reinterpret_cast<uint64_t>(address), strides[0]);
    return CUDA_SUCCESS;
  };
  driver.cuLaunchKernel = [](CUfunction function, unsigned blocks, unsigned, unsigned,
                             unsigned threads, unsigned, unsigned, unsigned, CUstream stream,
                             void** parameters, void**) {
    EXPECT_EQ(function, Function(kRepackFunction));
    g_log.repacks.push_back(*static_cast<const RepackArgs*>(parameters[0]));
    EXPECT_EQ(blocks, g_log.repacks.back().blocks);
    EXPECT_EQ(threads, kRepackThreads);
    g_log.enqueued.push_back({"repack", stream});
    return CUDA_SUCCESS;
  };
  driver.cuLaunchKernelEx = [](const CUlaunchConfig* config, CUfunction function, void** parameters,
                               void**) {
    const bool rows = function == Function(kRowsFunction);
    if (rows) {
      g_log.rows.push_back(*static_cast<const RowArgs*>(parameters[0]));
      EXPECT_EQ(config->gridDimX, BlocksOf(g_log.rows.back()));
      EXPECT_EQ(config->blockDimX, kRowThreads);
    } else {
      g_log.group = *static_cast<const GroupArgs*>(parameters[0]);
    }
    const std::string what = rows ? "rows" : "group";
    g_log.enqueued.push_back({config->numAttrs > 0 ? what + " beside" : what, config->hStream});
    return CUDA_SUCCESS;
  };
  return driver;
}

class GroupLauncherTest : public testing::Test {
 protected:
  GroupLauncherTest() : driver_(LoggingDriver()), compiler_(policies::DeviceModel()) {
    g_log = {};
    uintptr_t functions = 0;
    for (auto& footprint : kernels_.group) {
      for (CUfunction& function : footprint) function = Function(++functions);
    }
    kernels_.repack = Function(kRepackFunction);
    kernels_.rows = Function(kRowsFunction);
    std::array<CUstream, GroupLauncher::kTracks> streams;
    for (int i = 0; i < GroupLauncher::kTracks; ++i) streams[i] = StreamOf(i);
    auto launcher = GroupLauncher::Open(driver_, 0, kernels_, streams, SplitSums::kRepeatable);
    EXPECT_TRUE(launcher.ok()) << launcher.status();
    launcher_ = *std::move(launcher);
  }

  // Operands at multiples of 1 MiB, that of `index` and the next two; rows of A are lda long.
  static Op MakeOp(uint64_t index, uint32_t k, uint64_t lda) {
    Op op;
    op.kind = CONCERT_OP_GEMM;
    GemmArgs& gemm = op.gemm;
    gemm.m = 64, gemm.n = 64, gemm.k = k, gemm.batch = 1;
    gemm.a = 3 * index << 20, gemm.w = (3 * index + 1) << 20, gemm.d = (3 * index + 2) << 20;
    gemm.lda = lda, gemm.ldw = (k + 7) / 8 * 8, gemm.ldd = 64;
    gemm.alpha = 1;
    gemm.dtype = gemm.d_dtype = Dtype::kBf16;
    op.work = {.runs_on = policies::RunsOn::kSms, .m = 64, .n = 64, .k = k, .batch = 1};
    const std::optional<uint32_t> repack_bytes = GroupRepackBytes(gemm);
    op.work.carrier =
        repack_bytes.has_value() ? policies::Carrier::kGroup : policies::Carrier::kNone;
    op.work.repack_bytes = repack_bytes.value_or(0);
    return op;
  }

  // What a launch that may start at once enqueues.
  std::vector<std::string> Launch(const std::vector<Op>& ops, int track = 0, int sm_budget = 0) {
    std::vector<const Op*> pointers;
    std::vector<Problem> problems;
    for (const Op& op : ops) {
      pointers.push_back(&op);
      problems.push_back(Problem::Of(op.work));
    }
    EXPECT_TRUE(GroupLauncher::Carries(pointers));
    const size_t before = g_log.enqueued.size();
    const absl::Status status = launcher_->Launch(
        track,
        {.planned = {.sm_budget = sm_budget, .work_list = compiler_.Compile(problems, sm_budget)},
         .ops = pointers,
         .inputs_ready = true,
         .weights_ready = true});
    EXPECT_TRUE(status.ok()) << status;
    std::vector<std::string> enqueued;
    for (size_t i = before; i < g_log.enqueued.size(); ++i) {
      EXPECT_EQ(g_log.enqueued[i].stream, StreamOf(track));
      enqueued.push_back(g_log.enqueued[i].what);
    }
    return enqueued;
  }

  static Op MakeNorm(uint32_t rows) {
    Op op;
    op.kind = CONCERT_OP_RMS_NORM;
    op.work.carrier = policies::Carrier::kRows;
    op.rms_norm = {.rows = rows,
                   .columns = 64,
                   .x = 1 << 20,
                   .residual = 0,
                   .weight = 2 << 20,
                   .out = 3 << 20,
                   .x_stride = 64,
                   .residual_stride = 0,
                   .out_stride = 64,
                   .epsilon = 0,
                   .dtype = Dtype::kBf16,
                   .cast_first = false};
    return op;
  }

  // What it enqueues, which follows `after`, op by op.
  std::string LaunchRows(const std::vector<Op>& ops, const std::vector<Predecessor>& after,
                         int sm_budget = 0) {
    std::vector<const Op*> pointers;
    std::vector<TimelineWrite> writes;
    for (const Op& op : ops) {
      pointers.push_back(&op);
      writes.push_back({.address = 64 * pointers.size(), .value = 7});
    }
    EXPECT_TRUE(AreRows(pointers));
    const absl::Status status = launcher_->LaunchRows(0, {.planned = {.sm_budget = sm_budget},
                                                          .ops = pointers,
                                                          .writes = writes,
                                                          .after = after,
                                                          .inputs_ready = true});
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(g_log.enqueued.back().stream, StreamOf(0));
    return g_log.enqueued.back().what;
  }

  const Driver driver_;
  KernelTable kernels_;
  GroupCompiler compiler_;
  std::unique_ptr<GroupLauncher> launcher_;
};

TEST_F(GroupLauncherTest, AlignedOperandsAreReadWhereTheyLie) {
  const std::vector<Op> ops = {MakeOp(1, 480, 480), MakeOp(2, 479, 480)};
  EXPECT_THAT(Launch(ops), ElementsAre("upload", "upload", "group"));
  EXPECT_THAT(Launch(ops), ElementsAre("group beside"));
  EXPECT_TRUE(g_log.repacks.empty());
}

// Between what was there before and the group launch, neither of which it overlaps.
TEST_F(GroupLauncherTest, UnalignedOperandsAreRepackedRightBefore) {
  const std::vector<Op> aligned = {MakeOp(1, 480, 480)};
  const std::vector<Op> mixed = {MakeOp(1, 480, 480), MakeOp(2, 479, 479)};
  EXPECT_THAT(Launch(mixed), ElementsAre("upload", "upload", "repack", "group"));
  const std::pair<uint64_t, uint64_t> map = g_log.maps[4];  // W, A and D of one, then W, A
  EXPECT_EQ(map.first, g_log.repacks[0].matrices[0].to);
  EXPECT_EQ(map.second, 1024u);
  EXPECT_EQ(g_log.repacks[0].matrices[0].from, mixed[1].gemm.a);
  EXPECT_EQ(g_log.repacks[0].first_block[1], UINT32_MAX);
  // Again: records and items are there.
  EXPECT_THAT(Launch(mixed), ElementsAre("repack", "group"));
  // One that repacks nothing may run beside it: it does not write to the scratch.
  Launch(aligned);
  EXPECT_THAT(Launch(aligned), ElementsAre("group beside"));
  EXPECT_THAT(Launch(mixed), ElementsAre("repack", "group"));
}

// What waits for the launch before holds SMs already.
TEST_F(GroupLauncherTest, OverlappingLaunchesKeepToTheirBudgetTogether) {
  const std::vector<Op> small = {MakeOp(1, 64, 64)};  // one block
  const std::vector<Op> large(8, MakeOp(2, 64, 64));  // eight
  Launch(small, 0, 8);
  Launch(large, 0, 8);
  EXPECT_THAT(Launch(small, 0, 8), ElementsAre("group"));
  for (int beside = 0; beside < 7; ++beside) {
    EXPECT_THAT(Launch(small, 0, 8), ElementsAre("group beside"));
  }
  EXPECT_THAT(Launch(small, 0, 8), ElementsAre("group"));
  EXPECT_THAT(Launch(large, 0, 8), ElementsAre("group"));
  // Without a budget, whatever is there.
  Launch(large);
  EXPECT_THAT(Launch(large), ElementsAre("group beside"));
  EXPECT_THAT(Launch(large, 0, 8), ElementsAre("group"));
}

// GEMM, norm, GEMM: each starts beside the end of the one before and waits for what it counts.
TEST_F(GroupLauncherTest, RowsFollowAndAreFollowed) {
  const std::vector<Op> gemms = {MakeOp(1, 64, 64), MakeOp(2, 64, 64)};
  Launch(gemms);
  EXPECT_EQ(LaunchRows({MakeNorm(5), MakeNorm(3)},
                       {{.launches_back = 1, .op = 1}, {.launches_back = 0, .op = 0}}),
            "rows beside");
  const RowArgs& rows = g_log.rows.back();
  ASSERT_EQ(rows.task_count, 2);
  EXPECT_TRUE(rows.inputs_early);
  EXPECT_EQ(rows.tasks[0].blocks, 5);
  EXPECT_EQ(rows.tasks[0].stored, 5u);
  EXPECT_EQ(rows.tasks[0].after, GroupAfter(0, 1));
  EXPECT_EQ(rows.tasks[0].after_stored, g_log.group.inline_tasks[1].stored);
  EXPECT_TRUE(rows.tasks[0].next_on_timeline);
  EXPECT_EQ(rows.tasks[0].signal_address, 64u);
  EXPECT_EQ(rows.tasks[0].signal_value, 7u);
  EXPECT_EQ(rows.tasks[1].after, 0);
  EXPECT_FALSE(rows.tasks[1].next_on_timeline);
  EXPECT_EQ(rows.set, 1);

  const Op* one[] = {&gemms[0]};
  const Problem problem = Problem::Of(gemms[0].work);
  const Predecessor after = {.launches_back = 1, .op = 0};
  ASSERT_TRUE(launcher_
                  ->Launch(0, {.planned = {.work_list = compiler_.Compile({&problem, 1}, 0)},
                               .ops = one,
                               .after = {&after, 1},
                               .inputs_ready = true,
                               .weights_ready = true})
                  .ok());
  EXPECT_EQ(g_log.group.few.tasks[0].after, GroupAfter(1, 0));
  EXPECT_EQ(g_log.group.few.tasks[0].after_stored, 5u);
  EXPECT_EQ(g_log.group.set, 2);
}

// Counts go on where the set's last launch left them; what was interrupted waits for all of it.
TEST_F(GroupLauncherTest, RowsCountOnAndWaitAfterAnInterruption) {
  const std::vector<Op> norm = {MakeNorm(4)};
  for (int i = 0; i < kGroupCounterSets; ++i) LaunchRows(norm, {{}});
  EXPECT_EQ(LaunchRows(norm, {{.launches_back = 1, .op = 0}}), "rows beside");
  EXPECT_EQ(g_log.rows.back().tasks[0].stored, 8u);
  EXPECT_EQ(g_log.rows.back().tasks[0].after_stored, 4u);
  launcher_->Interrupt(0);
  EXPECT_EQ(LaunchRows(norm, {{.launches_back = 1, .op = 0}}), "rows");
  EXPECT_FALSE(g_log.rows.back().inputs_early);
  EXPECT_EQ(g_log.rows.back().tasks[0].after, 0);
}

TEST_F(GroupLauncherTest, ManyRowsShareTheBlocksInProportion) {
  const std::vector<Op> ops = {MakeNorm(1), MakeNorm(3000), MakeNorm(1000)};
  LaunchRows(ops, {});
  const RowArgs all = g_log.rows.back();
  EXPECT_EQ(all.tasks[0].blocks, 1);
  EXPECT_NEAR(all.tasks[1].blocks, 3 * all.tasks[2].blocks, 3);
  EXPECT_LE(BlocksOf(all), 1000u);
  LaunchRows(ops, {}, /*sm_budget=*/8);
  EXPECT_LE(BlocksOf(g_log.rows.back()), 57u);
}

TEST_F(GroupLauncherTest, EachTrackHasAScratchOfItsOwn) {
  const std::vector<Op> ops = {MakeOp(1, 479, 479)};
  Launch(ops, 0);
  Launch(ops, 1);
  ASSERT_EQ(g_log.repacks.size(), 2u);
  const uint64_t first = g_log.repacks[0].matrices[0].to, other = g_log.repacks[1].matrices[0].to;
  EXPECT_GE(std::max(first, other) - std::min(first, other), kernels::kGroupRepackBytes);
}

TEST_F(GroupLauncherTest, TakesNoMoreThanAScratchHolds) {
  Op half = MakeOp(1, 479, 479);
  half.work.repack_bytes = kernels::kGroupRepackBytes / 2;
  const std::vector<const Op*> ops = {&half, &half, &half};
  EXPECT_TRUE(GroupLauncher::Carries(std::span(ops).first(2)));
  EXPECT_FALSE(GroupLauncher::Carries(ops));
  Op other = MakeOp(2, 480, 480);
  other.gemm.dtype = Dtype::kFp16;
  const Op* mixed[] = {&half, &other};
  EXPECT_FALSE(GroupLauncher::Carries(mixed));
}

}  // namespace
}  // namespace concert::kernels::cuda
