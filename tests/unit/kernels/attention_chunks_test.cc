// How decode attention cuts rows into chunks, and the memory that it says it wants for them.
#include "kernels/attention_decode/attention_chunks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "kernels/op_table.h"
#include "tests/support/repetitions.h"
#include "tests/support/seed.h"

namespace concert::kernels {
namespace {

constexpr uint64_t kAnyBytes = std::numeric_limits<uint64_t>::max();

Op AttentionOp(uint32_t rows, uint32_t kv_heads, uint32_t length_max) {
  Op op;
  op.kind = CONCERT_OP_ATTENTION_DECODE;
  op.attention_decode = {};
  op.attention_decode.rows = rows;
  op.attention_decode.kv_heads = kv_heads;
  op.attention_decode.q_heads = 4 * kv_heads;
  op.attention_decode.head_dim = 128;
  op.attention_decode.length_max = length_max;
  return op;
}

AttentionChunks CutOf(const Op& op, size_t op_count, uint64_t bytes) {
  return ChunksOf(op.attention_decode, op_count, bytes);
}

TEST(AttentionChunksTest, CoverARowAndAreFewerWhereRowsAreMany) {
  EXPECT_EQ(CutOf(AttentionOp(64, 8, 512), 1, kAnyBytes).count, 1u);
  EXPECT_EQ(CutOf(AttentionOp(64, 8, 4096), 1, kAnyBytes).count, 4u);
  EXPECT_EQ(CutOf(AttentionOp(1, 1, 32768), 1, kAnyBytes).count, 64u);
  EXPECT_EQ(CutOf(AttentionOp(1, 1, 32768), 8, kAnyBytes).count, 32u);
  // In no memory a row stays whole.
  EXPECT_EQ(CutOf(AttentionOp(1, 1, 32768), 1, 0).count, 1u);
}

// What an op wants is enough for all that it would be cut into, by itself and, of each of them, for
// several that go together.
TEST(AttentionChunksTest, AreThoseOfAnyMemoryInWhatTheyWant) {
  std::mt19937 random(test::Seed());
  SCOPED_TRACE(testing::Message() << "seed " << test::Seed());
  for (uint32_t i = 0; i < test::Repetitions(2000); ++i) {
    const Op op = AttentionOp(1 + random() % (1u << random() % 17), 1 + random() % 8,
                              1 + random() % (1u << (4 + random() % 14)));
    const uint64_t wanted = FindOpKind(op.kind)->workspace_bytes(op);
    for (const size_t op_count : {size_t{1}, size_t{2}, kMaxTogether}) {
      const AttentionChunks chunks = CutOf(op, op_count, op_count * wanted);
      const AttentionChunks free = CutOf(op, op_count, kAnyBytes);
      ASSERT_EQ(chunks.count, free.count);
      ASSERT_EQ(chunks.tokens, free.tokens);
      const uint64_t length = op.attention_decode.length_max;
      ASSERT_GE(chunks.count * chunks.tokens, length);
      ASSERT_LT((chunks.count - 1) * chunks.tokens, length);
      ASSERT_EQ(op_count == 1 && wanted == 0, op_count == 1 && chunks.count == 1);
    }
  }
}

}  // namespace
}  // namespace concert::kernels
