// What becomes of a program's ops on their way to the step kernel: which of them are one stage, and
// what stages wait for.
#include "kernels/step/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/program/compile.h"
#include "tests/unit/kernels/admit_fixture.h"

namespace concert::kernels {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kRows = 8, kHidden = 256, kQHeads = 4, kKvHeads = 2, kDim = 64, kInner = 512;
constexpr uint32_t kHeadColumns = (kQHeads + 2 * kKvHeads) * kDim;

// Weights, caches and tables that do not exist: planning reads no operand.
constexpr uint32_t kWeights = 1, kCache = 2;
const std::vector<BufferRange> kMemory = {
    {}, {0x100000000, 256 * kMiB, 0, false}, {0x200000000, 64 * kMiB, 0, false}};

// Records what a client would.
class Recorder {
 public:
  uint32_t Slot(uint64_t columns, bool binding = false) {
    slots_.push_back({binding ? CONCERT_SLOT_BINDING : CONCERT_SLOT_ARENA, 0, kRows * columns * 2});
    return CONCERT_SLOT_HANDLE(slots_.size() - 1);
  }

  void Gemm(uint32_t a, uint32_t k, uint32_t d, uint32_t n) {
    concert_gemm_body& body = Add(GoodGemm()).body.gemm;
    body.m = kRows, body.n = n, body.k = k;
    body.a = {a, 0, 0}, body.w = Weight(n * k), body.d = {d, 0, 0};
    body.c = body.bias = {};
    body.lda = body.ldw = k, body.ldd = n, body.ldc = 0;
    body.beta = 0;
  }
  void Norm(uint32_t x, uint32_t residual, uint32_t out) {
    concert_rms_norm_body& body = Add(GoodRmsNorm()).body.rms_norm;
    body.columns = kHidden;
    body.x = {x, 0, 0}, body.residual = {residual, 0, 0}, body.out = {out, 0, 0};
    body.weight = Weight(kHidden);
    body.x_stride = body.out_stride = kHidden;
    body.residual_stride = residual == 0 ? 0 : kHidden;
  }
  void Gate(uint32_t x, uint32_t out) {
    concert_gated_activation_body& body = Add(GoodGatedActivation()).body.gated_activation;
    body.columns = kInner;
    body.x = {x, 0, 0}, body.out = {out, 0, 0};
    body.x_stride = 2 * kInner, body.out_stride = kInner;
    body.dtype = CONCERT_ABI_BF16;
  }
  void Rope(uint32_t heads) {
    concert_rope_append_body& body = Add(GoodRopeAppend()).body.rope_append;
    body.q = {heads, 0, 0};
    body.k = {heads, 0, kQHeads * kDim * 2}, body.v = {heads, 0, (kQHeads + kKvHeads) * kDim * 2};
    body.positions = Weight(64), body.slots = Weight(64), body.cos_sin = Weight(8192);
    body.q_stride = body.k_stride = body.v_stride = kHeadColumns;
    body.cache.k = {kCache, 0, 0}, body.cache.v = {kCache, 0, kMiB};
  }
  void Attend(uint32_t heads, uint32_t out) {
    concert_attention_decode_body& body = Add(GoodAttentionDecode()).body.attention_decode;
    body.q = {heads, 0, 0}, body.out = {out, 0, 0};
    body.page_table = Weight(256), body.lengths = Weight(64);
    body.q_stride = kHeadColumns, body.out_stride = kQHeads * kDim;
    body.cache.k = {kCache, 0, 0}, body.cache.v = {kCache, 0, kMiB};
  }
  concert_descriptor& Add(const concert_descriptor& op) { return ops_.emplace_back(op); }
  concert_operand Weight(uint64_t elements) {
    const concert_operand weight = {kWeights, 0, next_};
    next_ += (elements * 2 + 255) / 256 * 256;
    return weight;
  }

  const Program& Bind() {
    const ProgramSource source{.gpu = 0, .buffers = kMemory, .slots = slots_, .ops = ops_};
    const absl::StatusOr<ArenaPlan> arena = PlanArena(source);
    EXPECT_TRUE(arena.ok()) << arena.status();
    absl::StatusOr<std::unique_ptr<Program>> program = BindProgram(source, *arena, 0x300000000);
    EXPECT_TRUE(program.ok()) << program.status();
    program_ = *std::move(program);
    return *program_;
  }

 private:
  std::vector<concert_program_slot> slots_;
  std::vector<concert_descriptor> ops_;
  uint64_t next_ = 0;
  std::unique_ptr<Program> program_;
};

std::vector<std::string> StagesOf(const Program& program) {
  const absl::StatusOr<StepPlan> plan = PlanStep(program, kMiB);
  EXPECT_TRUE(plan.ok()) << plan.status();
  std::vector<std::string> stages;
  for (const PlannedStage& stage : plan->stages) stages.push_back(DescribeStage(program, stage));
  return stages;
}

// Two layers, with slots of their own or one set of slots for both.
const Program& RecordLayers(Recorder& recorder, bool slots_again) {
  const uint32_t residual = recorder.Slot(kHidden, /*binding=*/true);
  uint32_t update = 0, normed = 0, heads = 0, attended = 0, gates = 0, inner = 0;
  const auto slots = [&] {
    normed = recorder.Slot(kHidden), heads = recorder.Slot(kHeadColumns);
    attended = recorder.Slot(kQHeads * kDim), gates = recorder.Slot(2 * kInner);
    inner = recorder.Slot(kInner);
  };
  slots();
  for (int layer = 0; layer < 2; ++layer) {
    if (layer == 0) {
      recorder.Norm(residual, 0, normed);
    } else {
      recorder.Norm(update, residual, normed);
    }
    recorder.Gemm(normed, kHidden, heads, kHeadColumns);
    recorder.Rope(heads);
    recorder.Attend(heads, attended);
    update = recorder.Slot(kHidden);
    recorder.Gemm(attended, kQHeads * kDim, update, kHidden);
    recorder.Norm(update, residual, normed);
    recorder.Gemm(normed, kHidden, gates, 2 * kInner);
    recorder.Gate(gates, inner);
    update = recorder.Slot(kHidden);
    recorder.Gemm(inner, kInner, update, kHidden);
    if (!slots_again) slots();
  }
  recorder.Norm(update, residual, normed);
  return recorder.Bind();
}

TEST(StepPlanTest, ALayerIsFiveStages) {
  for (const bool slots_again : {false, true}) {
    Recorder recorder;
    EXPECT_THAT(StagesOf(RecordLayers(recorder, slots_again)),
                ElementsAre("bindings",                             //
                            "gemm 1 <- rms_norm 0, rope_append 2",  //
                            "attention_decode 3", "gemm 4",         //
                            "gemm 6 <- rms_norm 5, gated_activation 7", "gemm 8",
                            "gemm 10 <- rms_norm 9, rope_append 11",  //
                            "attention_decode 12", "gemm 13",         //
                            "gemm 15 <- rms_norm 14, gated_activation 16", "gemm 17", "rms_norm 18",
                            "bindings"));
  }
}

TEST(StepPlanTest, AStageWaitsForTheOneThatMakesWhatItReads) {
  Recorder recorder;
  const absl::StatusOr<StepPlan> plan = PlanStep(RecordLayers(recorder, true), 0);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (size_t i = 1; i < plan->stages.size(); ++i)
    EXPECT_THAT(plan->stages[i].waits, ElementsAre(i - 1)) << i;
}

// All but q, k and v, which are in memory: the cache, too, is where others left it.
TEST(StepPlanTest, WhatGemmsMakeForOthersGoesThroughTheExchange) {
  Recorder recorder;
  const absl::StatusOr<StepPlan> plan = PlanStep(RecordLayers(recorder, true), kMiB);
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<std::string> ways;
  for (const PlannedStage& stage : plan->stages) {
    std::string way = stage.exchanges ? "out " : "";
    if (stage.kind == StageKind::kGemm) {
      way = absl::StrCat(stage.gemm.a_exchanged ? "a " : "", stage.gemm.c_exchanged ? "c " : "",
                         stage.gemm.exchanged.begin != 0 ? "d " : "",
                         stage.gemm.stores_d ? "stored " : "");
    }
    ways.push_back(absl::StrCat(way, "waits ", absl::StrJoin(stage.waits, ",")));
  }
  EXPECT_THAT(ways,
              ElementsAre("waits ", "stored waits 0", "out waits 1", "a d waits 0", "a d waits ",
                          "a c d waits ", "a stored waits 1", "out waits 6", "a c d waits ",
                          "a d waits ", "a c stored waits 0", "waits 10", "waits 11,6"));
}

}  // namespace
}  // namespace concert::kernels
