// What a graph launches for a program's ops: which GEMMs take in what stands beside them, and what
// they must leave alone. And how the skinny kernel's blocks share a GEMM.
#include "kernels/program/graph_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/attention_decode/attention_chunks.h"
#include "kernels/program/pass.h"
#include "kernels/step/step_plan.h"
#include "tests/unit/kernels/step_recorder.h"

namespace concert::kernels {
namespace {

using testing::ElementsAre;

std::vector<std::string> LaunchesOf(const Program& program, std::span<const int8_t> owners = {}) {
  std::vector<std::string> texts;
  for (const GraphNode& node : GraphNodesOf(program, owners)) {
    if (node.IsLaunched())
      texts.push_back((node.kind == GraphNode::Kind::kSkinny ? "skinny " : "") +
                      KindsOf(program, node.ops));
  }
  return texts;
}

TEST(GraphNodesTest, GemmsTakeInNormsGatesAndResiduals) {
  const std::unique_ptr<Program> program = Layers({.rows = 64});
  EXPECT_THAT(LaunchesOf(*program),
              ElementsAre("skinny gemm <- rms_norm, rope_append", "attention_decode", "skinny gemm",
                          "skinny gemm <- rms_norm, gated_activation", "skinny gemm",
                          "skinny gemm <- rms_norm, rope_append", "attention_decode", "skinny gemm",
                          "skinny gemm <- rms_norm, gated_activation", "skinny gemm", "rms_norm"));
  const std::vector<GraphNode> nodes = GraphNodesOf(*program);
  ASSERT_EQ(nodes.size(), program->ops.size());
  // The last norm adds nothing any more: the GEMM ahead of it does, in place.
  const RmsNormArgs& recorded = program->ops.back().rms_norm;
  const RmsNormArgs& norm = nodes.back().op.rms_norm;
  const GemmArgs& gemm = nodes[nodes.size() - 2].skinny.gemm;
  EXPECT_NE(recorded.residual, 0u);
  EXPECT_EQ(norm.residual, 0u);
  EXPECT_EQ(norm.x, recorded.residual);
  EXPECT_EQ(gemm.c, recorded.residual);
  EXPECT_EQ(gemm.d, recorded.residual);
  EXPECT_EQ(gemm.beta, 1);
  EXPECT_EQ(nodes[nodes.size() - 2].skinny.gain, 0u);
}

// Of the norms that are folded into GEMMs: who has which place for them, or "self".
std::vector<std::string> NormsOf(const Program& program) {
  std::vector<std::string> texts;
  for (const GraphNode& node : GraphNodesOf(program)) {
    if (node.kind != GraphNode::Kind::kSkinny) continue;
    EXPECT_FALSE(node.takes && node.skinny.gain != 0);
    if (node.skinny.gain != 0) texts.push_back("self");
    if (node.takes) texts.push_back("takes " + std::to_string(*node.takes));
    if (!node.leaves) continue;
    EXPECT_NE(node.skinny.d_gain, 0u);
    texts.push_back("leaves " + std::to_string(*node.leaves));
  }
  return texts;
}

TEST(GraphNodesTest, GemmsNormWhatTheyMakeForTheNext) {
  // What the first norm reads is a binding. The last norm, which no GEMM reads, is by itself.
  EXPECT_THAT(NormsOf(*Layers({.rows = 64})), ElementsAre("self", "leaves 0", "takes 0", "leaves 0",
                                                          "takes 0", "leaves 0", "takes 0"));
  // Gains that the program makes are not there yet when what they are for is made.
  EXPECT_THAT(NormsOf(*Layers({.makes_gains = true})), ElementsAre("self"));
}

TEST(GraphNodesTest, WhatIsNormedAheadIsWhatItsReadersNorm) {
  const std::unique_ptr<Program> program = Layers({.rows = 64});
  const std::vector<GraphNode> nodes = GraphNodesOf(*program);
  const GraphNode* maker = nullptr;
  for (const GraphNode& node : nodes) {
    if (node.takes) {
      ASSERT_NE(maker, nullptr);
      EXPECT_EQ(node.takes, maker->leaves);
      EXPECT_EQ(node.skinny.gemm.a, maker->skinny.gemm.d);
      EXPECT_EQ(node.skinny.gemm.k, maker->skinny.gemm.n);
      EXPECT_NE(node.skinny.epsilon, 0);
    }
    if (node.leaves) maker = &node;
  }
}

// The workspace has places for so many.
TEST(GraphNodesTest, RowsOfTooManyColumnsAreNormedByTheirReader) {
  const auto norms = [](uint32_t columns) {
    StepRecorder recorder({.hidden = columns}, kStepMemory);
    const uint32_t x = recorder.Slot(64, /*binding=*/true);
    const uint32_t residual = recorder.Slot(columns, /*binding=*/true);
    const uint32_t out = recorder.Slot(64, /*binding=*/true);
    const uint32_t normed = recorder.Slot(columns);
    recorder.GemmOnto(x, 64, residual);
    recorder.Norm(residual, 0, normed);
    recorder.Gemm(normed, columns, out, 64);
    recorder.PlaceArena();
    return NormsOf(*recorder.Bind(0x300000000));
  };
  EXPECT_THAT(norms(kMaxHandoverColumns), ElementsAre("leaves 0", "takes 0"));
  EXPECT_THAT(norms(kMaxHandoverColumns + 64), ElementsAre("self"));
}

TEST(GraphNodesTest, GemmsRotateAndAppendWhatTheyMake) {
  const std::unique_ptr<Program> program = Layers({.rows = 64});
  const std::vector<GraphNode> nodes = GraphNodesOf(*program);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (program->ops[i].kind != CONCERT_OP_ROPE_APPEND) continue;
    EXPECT_FALSE(nodes[i].IsLaunched());
    const RopeAppendArgs& recorded = program->ops[i].rope_append;
    const SkinnyRope& rope = nodes[i - 1].skinny.rope;
    ASSERT_EQ(rope.parts, 1u);
    EXPECT_EQ(rope.op, recorded);
    EXPECT_EQ(rope.places[0].slots, recorded.slots);
    EXPECT_EQ(rope.places[0].v, recorded.cache.v);
  }
}

TEST(GraphNodesTest, HeadsStayInMemoryWhereTheyAreReadOrUnknown) {
  const auto rotates = [](const Program& program) {
    const std::vector<GraphNode> nodes = GraphNodesOf(program);
    return std::any_of(nodes.begin(), nodes.end(),
                       [](const GraphNode& node) { return node.skinny.rope.parts != 0; });
  };
  EXPECT_TRUE(rotates(*Layers({.interleaved = true})));
  EXPECT_FALSE(rotates(*Layers({.dim = 256})));
  EXPECT_FALSE(rotates(*Layers({.rotary = 20})));
  // Somebody reads q, k and v as they are in the arena.
  const StepModel model;
  StepRecorder recorder(model, kStepMemory);
  const uint32_t residual = recorder.Slot(model.hidden, /*binding=*/true);
  const uint32_t out = recorder.Slot(model.head_columns(), /*binding=*/true);
  const StepSlots slots = StepSlots::Of(recorder, model);
  RecordLayer(recorder, model, slots, residual, 0);
  recorder.Double(slots.heads, model.head_columns(), out);
  recorder.PlaceArena();
  EXPECT_FALSE(rotates(*recorder.Bind(0x300000000)));
}

TEST(GraphNodesTest, WeightsAreReadAheadWhereNobodyWritesThem) {
  const auto ahead = [](const StepModel& model) {
    std::vector<bool> each;
    for (const GraphNode& node : GraphNodesOf(*Layers(model))) {
      if (node.kind == GraphNode::Kind::kSkinny) each.push_back(node.weights_ahead);
    }
    return each;
  };
  EXPECT_THAT(ahead({}), ElementsAre(true, true, true, true, true, true, true, true));
  // Gains that the program makes, in one place: only of the first norm it is there when the GEMM
  // runs, and then it must not be read before.
  EXPECT_THAT(ahead({.makes_gains = true}),
              ElementsAre(false, true, true, true, true, true, true, true));
}

// Those that a run brings, as an adapter's, are only there once they have been copied.
TEST(GraphNodesTest, WeightsInBindingsAreNotReadAhead) {
  const StepModel model;
  for (const bool brings_gain : {false, true}) {
    StepRecorder recorder(model, kStepMemory);
    const uint32_t x = recorder.Slot(model.hidden, /*binding=*/true);
    const uint32_t normed = recorder.Slot(model.hidden);
    const uint32_t w = recorder.Slot(uint64_t{model.hidden} * model.hidden, /*binding=*/true);
    concert_rms_norm_body& norm = recorder.Norm(x, 0, normed);
    if (brings_gain) norm.weight = {w, 0, 0};
    concert_gemm_body& gemm =
        recorder.Gemm(normed, model.hidden, recorder.Slot(model.hidden), model.hidden);
    if (!brings_gain) gemm.w = {w, 0, 0};
    recorder.PlaceArena();
    const std::vector<GraphNode> nodes = GraphNodesOf(*recorder.Bind(0x300000000));
    ASSERT_EQ(nodes[1].kind, GraphNode::Kind::kSkinny);
    ASSERT_NE(nodes[1].skinny.gain, 0u);
    EXPECT_FALSE(nodes[1].weights_ahead) << (brings_gain ? "gain" : "W");
  }
}

TEST(GraphNodesTest, OpsStayAsTheyAreBeyond64RowsAndOfMembers) {
  const std::unique_ptr<Program> many = Layers({.rows = 65});
  const std::vector<GraphNode> nodes = GraphNodesOf(*many);
  EXPECT_TRUE(std::all_of(nodes.begin(), nodes.end(),
                          [](const GraphNode& node) { return node.kind == GraphNode::Kind::kOp; }));
  EXPECT_EQ(nodes.back().op.rms_norm.residual, many->ops.back().rms_norm.residual);
  // What members of a pass have by themselves.
  const std::unique_ptr<Program> few = Layers({});
  const std::vector<int8_t> owners(few->ops.size(), 0);
  for (const std::string& text : LaunchesOf(*few, owners))
    EXPECT_EQ(text.find("skinny"), std::string::npos) << text;
}

TEST(GraphNodesTest, PlainProductsOfManyColumnsAreTheLibrarys) {
  constexpr uint32_t kHidden = 4096;
  const auto launches = [](uint32_t rows, uint32_t columns, bool normed, bool activated = false) {
    StepRecorder recorder({.rows = rows, .hidden = columns}, kStepMemory);
    const uint32_t x = recorder.Slot(kHidden, /*binding=*/true);
    const uint32_t out = recorder.Slot(columns, /*binding=*/true);
    concert_gemm_body& gemm = recorder.Gemm(x, kHidden, out, columns);
    if (activated) gemm.activation = CONCERT_ABI_ACT_SILU;
    if (normed) {
      const uint32_t rows_normed = recorder.Slot(columns), last = recorder.Slot(64, true);
      recorder.Norm(out, 0, rows_normed);
      recorder.Gemm(rows_normed, columns, last, 64);
    }
    recorder.PlaceArena();
    return LaunchesOf(*recorder.Bind(0x300000000));
  };
  EXPECT_THAT(launches(64, 4096, false), ElementsAre("gemm"));
  EXPECT_THAT(launches(32, 4096, false), ElementsAre("gemm"));
  EXPECT_THAT(launches(24, 4096, false), ElementsAre("skinny gemm"));
  EXPECT_THAT(launches(64, 4032, false), ElementsAre("skinny gemm"));
  // It does most of a norm, or ends as the library does not.
  EXPECT_THAT(launches(64, 4096, true), ElementsAre("skinny gemm", "skinny gemm <- rms_norm"));
  EXPECT_THAT(launches(64, 4096, false, /*activated=*/true), ElementsAre("skinny gemm"));
}

TEST(GraphWorkspaceTest, IsWhatLaunchesUse) {
  const std::unique_ptr<Program> program = LayersOfLongRows();
  const std::vector<GraphNode> nodes = GraphNodesOf(*program), ops = NodesOfOps(*program);
  const auto attention = std::find_if(nodes.begin(), nodes.end(), [](const GraphNode& node) {
    return node.op.kind == CONCERT_OP_ATTENTION_DECODE;
  });
  const uint64_t chunk_bytes = StepModel().rows * StepModel().q_heads * (StepModel().dim + 2) * 4;
  const uint64_t attention_bytes = WorkspaceBytesOfAttentionDecode(attention->op);
  EXPECT_EQ(attention_bytes, 16 * chunk_bytes) << "chunks of 512 tokens";
  EXPECT_GE(LaunchBytesOf(nodes), attention_bytes);
  EXPECT_LT(LaunchBytesOf(nodes), attention_bytes + kArenaAlignment);
  EXPECT_EQ(LaunchBytesOf(ops), kMostWorkspaceBytes) << "the library's GEMMs";
  // One place, of which the next norm's rows are behind the last one's reader.
  const HandoverSpace space = HandoversOf(nodes);
  EXPECT_EQ(space.count, 1u);
  EXPECT_EQ(space.rows_bytes, kMaxSkinnyRows * StepModel().hidden * 2);
  EXPECT_EQ(space.squares_bytes, kMaxSkinnyRows * sizeof(float) * StepModel().hidden / 32);
  EXPECT_EQ(HandoversOf(ops).bytes(), 0u);
}

TEST(GraphWorkspaceTest, OfMembersIsSideBySideUpToWhatAnyLaunchHas) {
  const std::unique_ptr<Program> program = LayersOfLongRows();
  const std::vector<GraphNode> nodes = GraphNodesOf(*program);
  std::vector<int8_t> owners(program->ops.size(), Pass::kAll);
  const uint64_t one = LaunchBytesOf(nodes, owners, 8);
  ASSERT_GT(one, 0u);
  for (size_t i = 0; i < owners.size(); ++i) {
    if (program->ops[i].kind == CONCERT_OP_ATTENTION_DECODE) owners[i] = 3;
  }
  EXPECT_EQ(LaunchBytesOf(nodes, owners, 8), 8 * one);
  EXPECT_EQ(LaunchBytesOf(nodes, owners, kMostWorkspaceBytes / one + 1), kMostWorkspaceBytes);
}

TEST(SkinnyTilingTest, CoversAllColumnsAndSharesKOut) {
  for (const uint32_t n : {1u, 31u, 1024u, 3072u, 5632u, 28672u, 151936u}) {
    for (const uint32_t k : {64u, 128u, 896u, 1024u, 14336u}) {
      const SkinnyTiling tiling = TilingOf(n, k, 132);
      SCOPED_TRACE(testing::Message() << n << "x" << k << ": " << tiling.columns << " columns, "
                                      << tiling.parts << " parts");
      EXPECT_THAT(tiling.columns, testing::AnyOf(32u, 64u, 96u, 128u));
      EXPECT_GE(tiling.parts, 1u);
      EXPECT_LE(tiling.parts, std::min(kMaxSkinnyParts, k / kSkinnyStep));
      EXPECT_GE(uint64_t{tiling.TilesOf(n)} * tiling.columns, n);
      EXPECT_GE(SkinnyStages(tiling.columns), 2u);
    }
  }
}

// Figures of docs/adr/0036-gemms-of-few-rows.md: what was fastest, or nearly.
TEST(SkinnyTilingTest, LeavesSmsToTheNextLaunch) {
  for (const auto& [n, k] : {std::pair{3072u, 1024u}, {1024u, 1024u}, {5632u, 1024u}}) {
    const SkinnyTiling tiling = TilingOf(n, k, 132);
    EXPECT_LE(tiling.TilesOf(n) * tiling.parts, 99u) << n << "x" << k;
  }
}

}  // namespace
}  // namespace concert::kernels
