// Which words of stages are addresses of bindings.
#include "kernels/step/stage_addresses.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <vector>

namespace concert::kernels::cuda {
namespace {

const std::vector<Program::Binding> kBindings = {{.staged = 0x1000, .bytes = 64},
                                                 {.staged = 0x2000, .bytes = 64}};

// What the kernel makes of a stage whose bindings are `moves` away.
Stage Moved(Stage stage, std::vector<Address> moves) {
  const StageBindings found = FindBindings(stage, kBindings);
  for (size_t word = 0; word < sizeof(Stage) / sizeof(Address); ++word) {
    if (found.of_word[word] == 0) continue;
    auto* const at = reinterpret_cast<std::byte*>(&stage) + word * sizeof(Address);
    Address address;
    std::memcpy(&address, at, sizeof(address));
    address += moves[found.of_word[word] - 1];
    std::memcpy(at, &address, sizeof(address));
  }
  return stage;
}

TEST(StageAddressesTest, OperandsInBindingsMove) {
  Stage stage = {};
  stage.kind = StageKind::kGemm;
  stage.gemm.a = 0x1010, stage.gemm.w = 0x1020, stage.gemm.d = 0x203f, stage.gemm.c = 0x2040;
  stage.gemm.lda = 0x1000, stage.gemm.ldw = 0x1000;
  const Stage moved = Moved(stage, {0x100000, 0x200000});
  EXPECT_EQ(moved.gemm.a, 0x101010u);
  EXPECT_EQ(moved.gemm.d, 0x20203fu);
  EXPECT_EQ(moved.gemm.c, 0x2040u) << "behind the binding";
  EXPECT_EQ(moved.gemm.w, 0x1020u) << "there is a tensor map of it";
  EXPECT_EQ(moved.gemm.lda, 0x1000u) << "no address";
  EXPECT_EQ(moved.gemm.ldw, 0x1000u) << "no address";
}

TEST(StageAddressesTest, ThoseOfAUnionThatAStageDoesNotHaveStay) {
  Stage stage = {};
  stage.kind = StageKind::kGemm;
  stage.gemm.rope.slots = 0x1000;  // of no epilogue that has any
  EXPECT_EQ(Moved(stage, {1, 1}).gemm.rope.slots, 0x1000u);
  stage.gemm.epilogue = StepEpilogue::kRope;
  EXPECT_EQ(Moved(stage, {1, 1}).gemm.rope.slots, 0x1001u);
}

TEST(StageAddressesTest, AttentionsTablesMove) {
  Stage stage = {};
  stage.kind = StageKind::kAttention;
  stage.attention.op.lengths = 0x1000, stage.attention.op.page_table = 0x2000;
  stage.attention.append.slots = 0x2008;
  const Stage moved = Moved(stage, {0x10, 0x20});
  EXPECT_EQ(moved.attention.op.lengths, 0x1010u);
  EXPECT_EQ(moved.attention.op.page_table, 0x2020u);
  EXPECT_EQ(moved.attention.append.slots, 0x2028u);
}

TEST(StageAddressesTest, EveryKindOfRowsHasItsOwn) {
  for (const RowKind kind :
       {RowKind::kRmsNorm, RowKind::kGatedActivation, RowKind::kEmbedding, RowKind::kArgmax,
        RowKind::kRopeAppend, RowKind::kLayerNorm, RowKind::kElementwise, RowKind::kAdvance,
        RowKind::kQuantize, RowKind::kSample}) {
    Stage stage = {};
    stage.kind = StageKind::kRows;
    stage.row.kind = kind;
    const std::vector<Address*> addresses = AddressesOf(stage);
    EXPECT_GE(addresses.size(), 2u) << static_cast<int>(kind);
    for (Address* address : addresses) *address = 0x2000;
    Stage moved = Moved(stage, {0, 8});
    for (const Address* address : AddressesOf(moved)) EXPECT_EQ(*address, 0x2008u);
  }
}

}  // namespace
}  // namespace concert::kernels::cuda
