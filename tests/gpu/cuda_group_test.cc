// Group launches with the group kernel against a double-precision reference: shapes around every
// tile edge, all tile shapes and splits, epilogues, scales, budgets, timelines, and what the kernel
// must leave to the library.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "tests/gpu/group_run.h"
#include "tests/support/seed.h"
#include "tests/unit/kernels/group/work_list_check.h"

namespace concert::test {
namespace {

// What a launch's GEMMs have in common.
struct Format {
  std::string name;
  Dtype dtype = Dtype::kBf16;
  Scales scales = Scales::kNone;  // of A and W; fp8 only
  Dtype fp8_d = Dtype::kBf16;
};
const Format kBf16 = {.name = "bf16"};
const Format kFp16 = {.name = "fp16", .dtype = Dtype::kFp16};
const Format kFp8PerTensor = {
    .name = "fp8 per tensor to bf16", .dtype = Dtype::kFp8E4m3, .scales = Scales::kPerTensor};
const Format kFp8PerRow = {.name = "fp8 per row to fp16",
                           .dtype = Dtype::kFp8E4m3,
                           .scales = Scales::kPerRow,
                           .fp8_d = Dtype::kFp16};

// Sizes that need no particular tile.
const std::vector<GemmCase> kMixed = {
    {.m = 1, .n = 256, .k = 512},   {.m = 8, .n = 128, .k = 64},   {.m = 65, .n = 200, .k = 136},
    {.m = 130, .n = 72, .k = 264},  {.m = 33, .n = 136, .k = 128}, {.m = 16, .n = 64, .k = 1000},
    {.m = 300, .n = 50, .k = 64},   {.m = 3, .n = 700, .k = 96},   {.m = 128, .n = 128, .k = 128},
    {.m = 257, .n = 129, .k = 200}, {.m = 16, .n = 16, .k = 2048}, {.m = 64, .n = 512, .k = 72},
};

class GpuGroupTest : public GpuGroupTestBase {
 protected:
  // Aligned for the kernel; alpha is 1 in every other one, so that some are plain products.
  GroupRuns MakeRuns(std::span<const GemmCase> cases, const Format& format) {
    GroupRuns runs;
    for (GemmCase shape : cases) {
      shape.aligned_rows = true;
      shape.a_scales = shape.w_scales = format.scales;
      shape.fp8_d = format.fp8_d;
      if (runs.size() % 2 == 0) shape.alpha = 1;
      runs.emplace_back(device(), shape, format.dtype, Activation::kNone, random_);
    }
    return runs;
  }

  void RunAndCheck(std::span<const GemmCase> cases, const Format& format, int budget = 0) {
    GroupRuns runs = MakeRuns(cases, format);
    const std::vector<const Op*> ops = OpsOf(runs);
    LaunchAndWait(ops, Plan(ops, budget), budget);
    if (HasFatalFailure()) return;
    CheckAll(runs);
  }

  // Launches with `work_list` again and again; D must be right and its bits always the same. Under
  // a checker, where a launch takes a hundred times as long and the second tells all that a
  // twentieth would, CONCERT_TEST_REPETITIONS says how often at most.
  void RepeatAndCheck(GroupRuns& runs, const GroupWorkList& work_list, int times) {
    const char* const most = std::getenv("CONCERT_TEST_REPETITIONS");
    if (most != nullptr) times = std::min(times, std::max(2, std::atoi(most)));
    const std::vector<const Op*> ops = OpsOf(runs);
    std::vector<std::vector<uint8_t>> first;
    for (int i = 0; i < times; ++i) {
      SCOPED_TRACE("repetition " + std::to_string(i));
      for (GemmRun& run : runs) run.Poison();
      LaunchAndWait(ops, &work_list);
      if (HasFatalFailure()) return;
      for (size_t p = 0; p < runs.size(); ++p) {
        runs[p].Fetch();
        if (i == 0) {
          first.push_back(runs[p].bytes());
          runs[p].CheckFetched();
        }
        ASSERT_TRUE(runs[p].bytes() == first[p]) << "problem " << p << " has other bits";
      }
    }
  }

  static std::string Trace(const Format& format) {
    return format.name + ", seed " + std::to_string(Seed());
  }

  std::mt19937 random_{Seed()};
};

// All pairs of m and n around the edges of tiles, in groups of 16. Every pair has every other k;
// the next format has the rest.
TEST_F(GpuGroupTest, ShapesAroundTileEdges) {
  constexpr uint32_t kSizes[] = {1, 7, 8, 9, 63, 64, 65, 127, 129};
  constexpr uint32_t kDepths[] = {8, 16, 64, 72, 200, 1000};
  constexpr size_t kGroup = 16;
  uint64_t launches = 0;
  size_t turn = 0;
  for (const Format& format : {kBf16, kFp16, kFp8PerTensor, kFp8PerRow}) {
    SCOPED_TRACE(Trace(format));
    std::vector<GemmCase> cases;
    for (const uint32_t m : kSizes) {
      for (const uint32_t n : kSizes) {
        ++turn;
        for (size_t i = turn % 2; i < std::size(kDepths); i += 2) {
          cases.push_back({.m = m, .n = n, .k = kDepths[i]});
        }
      }
    }
    std::shuffle(cases.begin(), cases.end(), random_);
    for (size_t first = 0; first < cases.size(); first += kGroup, ++launches) {
      const size_t count = std::min(kGroup, cases.size() - first);
      RunAndCheck(std::span(cases).subspan(first, count), format);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_EQ(kernel_launches(), launches);
}

TEST_F(GpuGroupTest, OneLongDimension) {
  const std::vector<GemmCase> cases = {
      {.m = 4095, .n = 65, .k = 72}, {.m = 9, .n = 4095, .k = 64}, {.m = 64, .n = 129, .k = 4095}};
  for (const Format& format : {kBf16, kFp16, kFp8PerTensor, kFp8PerRow}) {
    SCOPED_TRACE(Trace(format));
    RunAndCheck(cases, format);
  }
}

// As far as a work list can name K, and an element further.
TEST_F(GpuGroupTest, LongestK) {
  SCOPED_TRACE(Trace(kBf16));
  constexpr uint32_t kMost = kernels::kGroupMaxKBytes / 2;
  const std::vector<GemmCase> cases = {{.m = 3, .n = 5, .k = kMost}, {.m = 1, .n = 2, .k = kMost}};
  RunAndCheck(cases, kBf16);
  EXPECT_EQ(kernel_launches(), 1u);
  GemmCase longer = cases[1];
  longer.aligned_rows = true;
  ++longer.k;
  GroupRuns runs;
  runs.emplace_back(device(), longer, Dtype::kBf16, Activation::kNone, random_);
  const std::vector<const Op*> ops = OpsOf(runs);
  std::vector<Problem> problems = ProblemsOf(ops);
  problems[0].k = kMost;
  LaunchAndWait(ops, compiler_->Compile(problems, 0));
  CheckAll(runs);
  EXPECT_EQ(kernel_launches(), 1u);
}

TEST_F(GpuGroupTest, RowsOfAnyDtypeAreScaled) {
  std::vector<GemmCase> cases = kMixed;
  for (size_t i = 0; i < cases.size(); ++i) {
    cases[i].row_scales = i % 3 != 2;
    cases[i].has_c = i % 2 == 0, cases[i].has_bias = i % 4 == 0;
  }
  for (const Format& format : {kBf16, kFp16}) {
    SCOPED_TRACE(Trace(format));
    RunAndCheck(cases, format);
  }
  EXPECT_EQ(kernel_launches(), 2u);
}

// More than GroupArgs holds are read from memory.
TEST_F(GpuGroupTest, AnyNumberOfProblems) {
  for (const size_t count : {1, 2, 63, 64, 65, 100, kernels::kMaxGroupProblems}) {
    SCOPED_TRACE(std::to_string(count) + " problems, seed " + std::to_string(Seed()));
    std::vector<GemmCase> cases(count);
    for (GemmCase& shape : cases) {
      shape.m = 1 + random_() % 40, shape.n = 1 + random_() % 100, shape.k = 8 + random_() % 90;
    }
    RunAndCheck(cases, kBf16);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(kernel_launches(), 7u);
}

// Tails in both directions, and problems of one tile that is full, or nearly empty.
TEST_F(GpuGroupTest, EveryTile) {
  for (const Format& format : {kBf16, kFp16, kFp8PerRow}) {
    for (const GroupTile tile : AllTiles()) {
      const uint32_t w = tile.w_rows, a = tile.a_rows;
      SCOPED_TRACE(Trace(format) + ", tile " + std::to_string(w) + "x" + std::to_string(a));
      const std::vector<GemmCase> cases = {{.m = a, .n = w, .k = 64},
                                           {.m = a + 1, .n = w + 1, .k = 72},
                                           {.m = 2 * a - 3, .n = 2 * w - 7, .k = 136},
                                           {.m = 1, .n = 1, .k = 8},
                                           {.m = a / 2 + 1, .n = 3 * w - 1, .k = 264}};
      GroupRuns runs = MakeRuns(cases, format);
      const std::vector<const Op*> ops = OpsOf(runs);
      for (const GroupBlocks kind : KindsFor(tile)) {
        const HandList work_list(ProblemsOf(ops), tile, 1, 5, kind);
        kernels::CheckCoverage(work_list.get(), ProblemsOf(ops));
        for (GemmRun& run : runs) run.Poison();
        LaunchAndWait(ops, &work_list.get());
        if (HasFatalFailure()) return;
        CheckAll(runs);
      }
    }
  }
}

TEST_F(GpuGroupTest, EveryTileSplitAlongK) {
  for (const Format& format : {kBf16, kFp8PerTensor}) {
    for (const GroupTile tile : AllTiles()) {
      const std::vector<GemmCase> cases = {
          {.m = tile.a_rows - 1u, .n = tile.w_rows + 9u, .k = 1000},
          {.m = tile.a_rows + 1u, .n = tile.w_rows - 1u, .k = 1000}};
      GroupRuns runs = MakeRuns(cases, format);
      const std::vector<Problem> problems = ProblemsOf(OpsOf(runs));
      for (const uint32_t splits : {2, 3, 8}) {
        SCOPED_TRACE(Trace(format) + ", tile " + std::to_string(tile.w_rows) + "x" +
                     std::to_string(tile.a_rows) + ", splits " + std::to_string(splits));
        for (const GroupBlocks kind : KindsFor(tile)) {
          const HandList work_list(problems, tile, splits, 20, kind);
          kernels::CheckCoverage(work_list.get(), problems);
          RepeatAndCheck(runs, work_list.get(), splits == 3 ? 20 : 2);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(GpuGroupTest, PlannedSplits) {
  const std::vector<GemmCase> cases = {
      {.m = 16, .n = 16, .k = 4096}, {.m = 4, .n = 128, .k = 8192}, {.m = 33, .n = 72, .k = 4096}};
  for (const Format& format : {kBf16, kFp16, kFp8PerRow}) {
    SCOPED_TRACE(Trace(format));
    GroupRuns runs = MakeRuns(cases, format);
    const GroupWorkList* work_list = Plan(OpsOf(runs));
    ASSERT_NE(work_list, nullptr);
    EXPECT_GT(work_list->max_splits, 1);
    RepeatAndCheck(runs, *work_list, 20);
    if (HasFatalFailure()) return;
  }
}

// Every way to finish, at shapes with tails.
TEST_F(GpuGroupTest, Epilogues) {
  const GemmCase shapes[] = {{.m = 7, .n = 9, .k = 72},
                             {.m = 65, .n = 129, .k = 200},
                             {.m = 130, .n = 257, .k = 64, .pad = 8},
                             {.m = 16, .n = 64, .k = 2048},
                             {.m = 200, .n = 63, .k = 16}};
  constexpr float kAlphas[] = {1, 0.75f, -1.5f, 0};
  for (const Format& format : {kBf16, kFp16, kFp8PerTensor, kFp8PerRow}) {
    SCOPED_TRACE(Trace(format));
    GroupRuns runs;
    for (const Activation activation :
         {Activation::kNone, Activation::kRelu, Activation::kGelu, Activation::kSilu}) {
      for (int finish = 0; finish < 6; ++finish) {
        GemmCase shape = shapes[runs.size() % std::size(shapes)];
        shape.aligned_rows = true;
        shape.a_scales = shape.w_scales = format.scales;
        shape.fp8_d = format.fp8_d;
        shape.has_bias = finish % 2 != 0;
        shape.has_c = finish / 2 == 1;
        shape.in_place = finish / 2 == 2;
        // 0 only where something else is left.
        shape.alpha = kAlphas[runs.size() % (finish == 0 ? 3 : 4)];
        runs.emplace_back(device(), shape, format.dtype, activation, random_);
      }
    }
    const std::vector<const Op*> ops = OpsOf(runs);
    LaunchAndWait(ops, Plan(ops));
    if (HasFatalFailure()) return;
    CheckAll(runs);
  }
  EXPECT_EQ(kernel_launches(), 4u);
}

TEST_F(GpuGroupTest, AnyNumberOfBlocks) {
  GroupRuns runs = MakeRuns(kMixed, kBf16);
  const std::vector<const Op*> ops = OpsOf(runs);
  for (const int budget : {1, 7, 66, 131}) {
    SCOPED_TRACE("budget " + std::to_string(budget) + ", seed " + std::to_string(Seed()));
    const GroupWorkList* work_list = Plan(ops, budget);
    ASSERT_NE(work_list, nullptr);
    EXPECT_LE(work_list->blocks, budget);
    for (GemmRun& run : runs) run.Poison();
    LaunchAndWait(ops, work_list, budget);
    if (HasFatalFailure()) return;
    CheckAll(runs);
  }
}

// On one block, so that many problems are still at work when the first is done: who sees a
// problem's value sees its results, whatever the others do.
TEST_F(GpuGroupTest, ATimelineTellsThatItsProblemIsDone) {
  std::vector<GemmCase> cases;
  for (int i = 0; i < 4; ++i) cases.insert(cases.end(), kMixed.begin(), kMixed.end());
  for (const int budget : {1, 3, 0}) {
    SCOPED_TRACE("budget " + std::to_string(budget) + ", seed " + std::to_string(Seed()));
    GroupRuns runs = MakeRuns(cases, kBf16);
    const std::vector<const Op*> ops = OpsOf(runs);
    const std::vector<daemon::TimelineWrite> writes = NextWrites(ops.size());
    ASSERT_OK(device().Launch({.planned = {.form = policies::Form::kGroup,
                                           .lane = kLane,
                                           .sm_budget = budget,
                                           .work_list = Plan(ops, budget)},
                               .ops = ops,
                               .writes = writes,
                               .inputs_ready = true,
                               .weights_ready = true}));
    std::vector<size_t> waiting(runs.size());
    for (size_t i = 0; i < waiting.size(); ++i) waiting[i] = i;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!waiting.empty()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline)
          << waiting.size() << " problems have not arrived, " << device().healthy();
      std::erase_if(waiting, [&](size_t i) {
        const uint64_t value = Timeline(kFirstTimeline + static_cast<int>(i));
        if (value < writes[i].value) return false;
        runs[i].Fetch();
        EXPECT_EQ(value, writes[i].value) << "problem " << i;
        return true;
      });
    }
    for (size_t i = 0; i < runs.size(); ++i) {
      SCOPED_TRACE("problem " + std::to_string(i));
      runs[i].CheckFetched();
    }
  }
}

// On one block, 64 tiles behind it: a problem signals when it is done, not when the block is. The
// host may be held up until all is done, hence the attempts.
TEST_F(GpuGroupTest, AProblemIsNotHeldBackByWhatItsBlockDoesNext) {
  GroupRuns runs = MakeRuns(
      std::vector<GemmCase>{{.m = 64, .n = 128, .k = 64}, {.m = 512, .n = 1024, .k = 2816}}, kBf16);
  const std::vector<const Op*> ops = OpsOf(runs);
  const HandList work_list(ProblemsOf(ops), {128, 64}, /*splits=*/1, /*blocks=*/1);
  constexpr int kAttempts = 20;
  int early = 0;
  for (int attempt = 0; attempt < kAttempts && early == 0; ++attempt) {
    const std::vector<daemon::TimelineWrite> writes = NextWrites(ops.size());
    ASSERT_OK(device().Launch(
        {.planned = {.form = policies::Form::kGroup, .lane = kLane, .work_list = &work_list.get()},
         .ops = ops,
         .writes = writes,
         .inputs_ready = true,
         .weights_ready = true}));
    ASSERT_TRUE(WaitFor(kFirstTimeline, writes[0].value)) << device().healthy();
    early += Timeline(kFirstTimeline + 1) < writes[1].value ? 1 : 0;
    ASSERT_TRUE(WaitFor(kFirstTimeline + 1, writes[1].value)) << device().healthy();
  }
  EXPECT_GT(early, 0) << "the short problem was never seen before the long one, in " << kAttempts
                      << " launches";
}

// A, W or both where no tensor map takes them, beside others where they lie well.
TEST_F(GpuGroupTest, UnalignedOperandsAreRepacked) {
  for (const Format& format : {kBf16, kFp16, kFp8PerTensor, kFp8PerRow}) {
    std::vector<GemmCase> cases;
    for (const uint32_t k : {1u, 7u, 8u, 64u, 479u, 1001u}) {
      for (uint32_t which = 0; which < 4; ++which) {
        const bool a = (which & 1) != 0, w = (which & 2) != 0;
        cases.push_back({.m = 130, .n = 65, .k = k, .tight_a = a, .tight_w = w});
        cases.push_back({.m = 33, .n = 200, .k = k, .a_offset = a, .w_offset = w});
      }
    }
    // Every offset within 16 bytes.
    for (uint32_t i = 0; i < 16; ++i) {
      cases.push_back({.m = 1 + 9 * i, .n = 97, .k = 100 + i, .tight_w = true, .a_offset = i});
    }
    std::shuffle(cases.begin(), cases.end(), random_);
    SCOPED_TRACE(Trace(format));
    RunAndCheck(cases, format);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(kernel_launches(), 4u);
}

TEST_F(GpuGroupTest, OneUnalignedProblem) {
  for (const Format& format : {kBf16, kFp8PerTensor}) {
    SCOPED_TRACE(Trace(format));
    const GemmCase shape = {.m = 2048, .n = 256, .k = 479, .tight_a = true, .tight_w = true};
    RunAndCheck({&shape, 1}, format);
    const GemmCase least = {.m = 1, .n = 1, .k = 1, .a_offset = 1, .w_offset = 1};
    RunAndCheck({&least, 1}, format);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(kernel_launches(), 4u);
}

// More copies than one launch describes.
TEST_F(GpuGroupTest, ManyUnalignedProblems) {
  std::vector<GemmCase> cases(kernels::kMaxGroupProblems);
  for (GemmCase& shape : cases) {
    shape.m = 1 + random_() % 40, shape.n = 1 + random_() % 100, shape.k = 1 + random_() % 90;
    shape.tight_a = random_() % 4 != 0, shape.tight_w = random_() % 4 != 0;
  }
  SCOPED_TRACE("seed " + std::to_string(Seed()));
  RunAndCheck(cases, kBf16);
  EXPECT_EQ(kernel_launches(), 1u);
}

// Launches without a pause on two lanes, with the same problems in another order each time: what
// one has copied lies elsewhere, or on another lane, in the next.
TEST_F(GpuGroupTest, LaunchesTakeTurnsWithTheScratch) {
  SCOPED_TRACE("seed " + std::to_string(Seed()));
  constexpr int kTurns = 20;
  std::array<GroupRuns, 2> runs;
  std::array<std::vector<const Op*>, 2> ops;
  for (size_t lane = 0; lane < runs.size(); ++lane) {
    std::vector<GemmCase> cases = kMixed;
    for (GemmCase& shape : cases) shape.a_offset = shape.w_offset = random_() % 3;
    runs[lane] = MakeRuns(cases, kBf16);
    ops[lane] = OpsOf(runs[lane]);
  }
  for (int turn = 0; turn < kTurns; ++turn) {
    for (size_t lane = 0; lane < runs.size(); ++lane) {
      std::shuffle(ops[lane].begin(), ops[lane].end(), random_);
      const std::span some = std::span(ops[lane]).first(1 + random_() % ops[lane].size());
      const std::span launched = turn + 1 == kTurns ? std::span(ops[lane]) : some;
      ASSERT_OK(device().Launch({.planned = {.form = policies::Form::kGroup,
                                             .lane = policies::kGroupLanes[lane],
                                             .work_list = Plan(launched)},
                                 .ops = launched,
                                 .inputs_ready = true,
                                 .weights_ready = true}));
    }
  }
  for (size_t lane = 0; lane < runs.size(); ++lane) {
    Finish(policies::kGroupLanes[lane]);
    CheckAll(runs[lane]);
  }
  EXPECT_EQ(kernel_launches(), 2u * kTurns);
}

// Rows or addresses of D that no tensor map takes, those of A and W too, and with all there is to
// finish; in all tiles that a compiler or nobody would choose.
TEST_F(GpuGroupTest, DMayLieAnywhere) {
  const std::vector<GemmCase> cases = {{.m = 20, .n = 33, .k = 17, .has_bias = true},
                                       {.m = 48, .n = 80, .k = 64, .pad = 3},
                                       {.m = 16, .n = 64, .k = 64, .offset = 1},
                                       {.m = 300, .n = 517, .k = 259, .has_c = true},
                                       {.m = 1, .n = 1, .k = 1, .offset = 3}};
  int launches = 0;
  for (const Format& format : {kBf16, kFp16, kFp8PerTensor, kFp8PerRow}) {
    SCOPED_TRACE(Trace(format));
    RunAndCheck(cases, format);
    ++launches;
    GroupRuns runs = MakeRuns(cases, format);
    const std::vector<const Op*> ops = OpsOf(runs);
    for (const GroupTile tile : AllTiles()) {
      const HandList work_list(ProblemsOf(ops), tile, 1, 5);
      for (GemmRun& run : runs) run.Poison();
      LaunchAndWait(ops, &work_list.get());
      if (HasFatalFailure()) return;
      CheckAll(runs);
      ++launches;
    }
  }
  EXPECT_EQ(kernel_launches(), launches);
}

// More to repack than there is room for: one problem alone, and several together.
TEST_F(GpuGroupTest, LeavesToTheLibraryWhatItCannotRepack) {
  const GemmCase large = {.m = 65537, .n = 8, .k = 1023, .tight_a = true};
  RunAndCheck({&large, 1}, kBf16);
  std::vector<GemmCase> cases(3, {.m = 65537, .n = 16, .k = 511, .tight_a = true});
  RunAndCheck(cases, kBf16);
  EXPECT_EQ(kernel_launches(), 0u);
  cases.pop_back();
  cases[0].m = 65000;
  cases[1].m = 65000;
  RunAndCheck(cases, kBf16);
  EXPECT_EQ(kernel_launches(), 1u);
}

// A work list is no promise that the kernel can take the ops.
TEST_F(GpuGroupTest, LeavesToTheLibraryWhatTheKernelCannotTake) {
  const std::vector<GemmCase> cases = {{.m = 20, .n = 33, .k = 17, .has_bias = true},
                                       {.m = 64, .n = 64, .k = 64, .batch = 2}};
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp8E4m3, Dtype::kFp32}) {
    SCOPED_TRACE("dtype " + std::to_string(static_cast<int>(dtype)));
    GroupRuns runs;
    for (const GemmCase& shape : cases) {
      runs.emplace_back(device(), shape, dtype, Activation::kRelu, random_);
    }
    const std::vector<const Op*> ops = OpsOf(runs);
    std::vector<Problem> problems = ProblemsOf(ops);
    for (Problem& problem : problems) problem.batch = 1, problem.dtype = Dtype::kBf16;
    LaunchAndWait(ops, compiler_->Compile(problems, 0));
    if (HasFatalFailure()) return;
    CheckAll(runs);
  }
  EXPECT_EQ(kernel_launches(), 0u);
}

TEST_F(GpuGroupTest, LeavesToTheLibraryMixedDtypesAndOtherLanes) {
  GroupRuns runs = MakeRuns(kMixed, kBf16);
  LaunchAndWait(OpsOf(runs), Plan(OpsOf(runs)), 0, /*lane=*/2);
  if (HasFatalFailure()) return;
  CheckAll(runs);
  const GemmCase shape = {.m = 65, .n = 72, .k = 64, .aligned_rows = true};
  GroupRuns mixed;
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16}) {
    mixed.emplace_back(device(), shape, dtype, Activation::kNone, random_);
  }
  std::vector<Problem> problems = ProblemsOf(OpsOf(mixed));
  problems[1].dtype = Dtype::kBf16;
  LaunchAndWait(OpsOf(mixed), compiler_->Compile(problems, 0));
  if (HasFatalFailure()) return;
  CheckAll(mixed);
  EXPECT_EQ(kernel_launches(), 0u);
}

}  // namespace
}  // namespace concert::test
