// What group launches take in every tile and split, as steps of a chain, for
// policies/training/data/h200_group_steps.csv: plans are held against it by
// tests/unit/kernels/group/group_steps_test.cc.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "tests/gpu/group_run.h"

namespace concert::test {
namespace {

using daemon::TimelineWrite;

// A launch of `count` equal GEMMs.
struct ChainStep {
  uint32_t m, n, k;
  int count;

  std::vector<Problem> problems() const {
    return std::vector<Problem>(count, Problem{.m = m, .n = n, .k = k});
  }
  double flops() const { return 2.0 * m * n * k * count; }
};

class GpuGroupMeasure : public GpuGroupTestBase {
 protected:
  static constexpr int kSteps = 200, kRounds = 2;
  static constexpr int kInFlight = 24;  // less than GroupLauncher::kMaxUnfinished
  // Outputs take turns, so that what a step reads is not what the one after next writes.
  static constexpr int kOutputs = 17;
  static constexpr uint64_t kOutputBytes = 8 << 20;
  // Three times the L2 of an H200: weights come from HBM.
  static constexpr uint64_t kWeightBytes = uint64_t{180} << 20, kMaxWeightBytes = uint64_t{3} << 30;
  static constexpr int kMaxCount = 8;

  void SetUp() override {
    GpuGroupTestBase::SetUp();
    if (IsSkipped()) return;
    const char* const path = std::getenv("CONCERT_MEASURE_GROUPS");
    if (path == nullptr) GTEST_SKIP() << "CONCERT_MEASURE_GROUPS names no file to write to";
    file_ = std::fopen(path, "w");
    ASSERT_NE(file_, nullptr) << path;
    std::fputs("count,m,n,k,tile_w_rows,tile_a_rows,splits,blocks,step_us\n", file_);
    outputs_ = std::make_unique<HostMirror>(device(), kMaxCount * kOutputs * kOutputBytes, 0);
    const absl::StatusOr<Allocation> weights = device().Allocate(kMaxWeightBytes);
    ASSERT_OK(weights.status());
    weights_ = *weights;
    close(weights_.export_fd);
  }
  void TearDown() override {
    if (file_ != nullptr) std::fclose(file_);
    outputs_.reset();
    if (weights_.address != 0) device().Free(weights_);
  }

  // In all tiles and splits that could pay, on all SMs or on as many as there are items.
  void MeasureAll(const ChainStep& step) {
    const int sm_count = device().info().model.sm_count;
    for (const GroupTile tile : kernels::kGroupTiles) {
      if (tile.a_rows > 32 && tile.a_rows >= 2 * step.m) continue;
      if (tile.a_rows < 64 && tile.a_rows * 8u < step.m) continue;
      const int tiles = static_cast<int>((step.n + tile.w_rows - 1) / tile.w_rows *
                                         ((step.m + tile.a_rows - 1) / tile.a_rows) * step.count);
      if (tiles > 6 * sm_count) continue;
      for (const int splits : {1, 2, 3, 4, 6, 8}) {
        if (splits > 1 && tiles * splits > sm_count) break;
        if (step.k / 64 < 2u * splits) break;
        Measure(step, tile, splits, std::min(tiles * splits, sm_count));
        if (splits == 1 && tiles > sm_count / 2) Measure(step, tile, splits, sm_count / 2);
        if (HasFatalFailure()) return;
      }
    }
  }

 private:
  void Measure(const ChainStep& step, GroupTile tile, int splits, int blocks) {
    const HandList work_list(step.problems(), tile, splits, blocks);
    double best_us = 0;
    for (int round = 0; round < kRounds; ++round) {
      double us = 0;
      RunChain(step, work_list.get(), us);
      if (HasFatalFailure()) return;
      if (round == 0 || us < best_us) best_us = us;
    }
    std::fprintf(file_, "%d,%u,%u,%u,%d,%d,%d,%d,%.3f\n", step.count, step.m, step.n, step.k,
                 tile.w_rows, tile.a_rows, splits, blocks, best_us);
  }

  // Each GEMM of a step follows the one in its place in the step before.
  void RunChain(const ChainStep& step, const GroupWorkList& work_list, double& us) {
    std::vector<kernels::Predecessor> after(step.count);
    for (int i = 0; i < step.count; ++i) {
      after[i] = {.launches_back = 1, .op = static_cast<uint16_t>(i)};
    }
    std::vector<TimelineWrite> writes = NextWrites(step.count);
    const auto start = std::chrono::steady_clock::now();
    for (int turn = 0; turn < kSteps; ++turn) {
      const std::vector<Op> made = OpsOf(step, turn);
      std::vector<const Op*> ops;
      for (const Op& op : made) ops.push_back(&op);
      ASSERT_OK(device().Launch(
          {.planned = {.form = policies::Form::kGroup, .lane = kLane, .work_list = &work_list},
           .ops = ops,
           .writes = writes,
           .after = turn == 0 ? std::span<kernels::Predecessor>() : std::span(after),
           .inputs_ready = true,
           .weights_ready = true}));
      if (turn >= kInFlight) WaitForAll(writes, kInFlight);
      if (HasFatalFailure()) return;
      for (TimelineWrite& write : writes) ++write.value;
    }
    WaitForAll(writes, 1);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    us = took.count() / kSteps;
  }

  // Until the step `back` steps before that of `writes` has ended.
  void WaitForAll(const std::vector<TimelineWrite>& writes, int back) {
    for (size_t i = 0; i < writes.size(); ++i) {
      ASSERT_TRUE(WaitFor(kFirstTimeline + static_cast<int>(i), writes[i].value - back))
          << device().healthy();
    }
  }

  std::vector<Op> OpsOf(const ChainStep& step, int turn) const {
    const uint64_t weight_bytes = uint64_t{step.n} * step.k * 2;
    const uint64_t sets = std::max<uint64_t>(4, kWeightBytes / (weight_bytes * step.count));
    std::vector<Op> ops(step.count);
    for (int i = 0; i < step.count; ++i) {
      const auto output = [&](int place) {
        return outputs_->address() + (i * kOutputs + place) * kOutputBytes;
      };
      Op& op = ops[i];
      op.kind = CONCERT_OP_GEMM;
      GemmArgs& gemm = op.gemm;
      gemm.m = step.m, gemm.n = step.n, gemm.k = step.k, gemm.batch = 1;
      gemm.lda = gemm.ldw = step.k, gemm.ldc = gemm.ldd = step.n;
      gemm.a = output(turn % (kOutputs - 1)), gemm.d = output(turn % (kOutputs - 1) + 1);
      gemm.w = weights_.address + (turn % sets * step.count + i) * weight_bytes;
      gemm.alpha = 1;
      gemm.dtype = gemm.d_dtype = Dtype::kBf16;
      op.work = {
          .runs_on = policies::RunsOn::kSms, .m = step.m, .n = step.n, .k = step.k, .batch = 1};
      op.work.carrier = policies::Carrier::kGroup;
    }
    return ops;
  }

  FILE* file_ = nullptr;
  std::unique_ptr<HostMirror> outputs_;
  Allocation weights_;
};

TEST_F(GpuGroupMeasure, StepsOfAChain) {
  constexpr std::array<uint32_t, 3> kShapes[] = {
      {16, 2048, 2048},  {8, 4096, 4096},   {64, 4096, 4096}, {512, 1024, 1024}, {16, 2048, 1024},
      {16, 4096, 1024},  {64, 1024, 1024},  {64, 2048, 2048}, {128, 1024, 4096}, {128, 4096, 1024},
      {256, 2048, 2048}, {512, 768, 768},   {32, 8192, 2048}, {512, 2048, 512},  {512, 4096, 4096},
      {128, 3072, 3072}, {1024, 2048, 2048}};
  constexpr double kMaxFlops = 40e9;  // some 60 us
  for (const int count : {1, 2, 4, 8}) {
    for (const auto& [m, n, k] : kShapes) {
      const ChainStep step = {m, n, k, count};
      const uint64_t weight_bytes = uint64_t{n} * k * 2 * count;
      if (step.flops() > kMaxFlops || 4 * weight_bytes > kMaxWeightBytes) continue;
      MeasureAll(step);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace concert::test
