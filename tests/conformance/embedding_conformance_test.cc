// embedding of every backend: rows as they are in the table.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/conformance/model_ops_fixture.h"

namespace concert::daemon::conformance {
namespace {

class EmbeddingConformanceTest : public ModelOpsConformanceTest {
 protected:
  // Ids of every sort: in range, padding, and out of range on both sides.
  void RunCase(uint32_t columns, uint32_t padding, Dtype dtype, uint8_t index_dtype) {
    SCOPED_TRACE(testing::Message() << columns << " columns, padding " << padding << ", dtype "
                                    << static_cast<int>(dtype) << ", ids " << int{index_dtype});
    constexpr uint32_t kVocabulary = 50;
    const Indices ids = {0, 49, 7, -1, 7, 50, kHighest, kLowest, 1 << 20};
    const uint64_t stride = columns + padding;
    const Values table = RandomNumbers(dtype, kVocabulary * stride, 1);
    concert_descriptor descriptor{};
    concert_embedding_body& body = descriptor.body.embedding;
    body.rows = static_cast<uint32_t>(ids.size());
    body.columns = columns, body.vocabulary = kVocabulary;
    body.table_stride = body.out_stride = stride;
    body.dtype = static_cast<uint8_t>(dtype), body.index_dtype = index_dtype;
    body.ids.buffer = NewBuffer(EncodeIndices(index_dtype, ids));
    body.table.buffer = NewBuffer(Encode(dtype, table));
    body.out.buffer = NewPoisoned(ids.size() * stride * DtypeBytes(dtype));
    RunKind(descriptor, CONCERT_OP_EMBEDDING);
    const Values out = ReadValues(body.out.buffer, dtype, ids.size() * stride);
    for (size_t row = 0; row < ids.size(); ++row) {
      const auto id = static_cast<uint64_t>(std::clamp<int64_t>(ids[row], 0, kVocabulary - 1));
      for (uint64_t i = 0; i < columns; ++i) {
        ASSERT_EQ(out[row * stride + i], ids[row] < 0 ? 0 : table[id * stride + i])
            << "row " << row << ", column " << i;
      }
      for (uint64_t i = columns; i < stride; ++i) ASSERT_TRUE(std::isnan(out[row * stride + i]));
    }
  }
};

TEST_P(EmbeddingConformanceTest, TakesRowsAndKeepsIdsInRange) {
  for (const Dtype dtype : kElementTypes) {
    for (const uint8_t index_dtype : kIndexDtypes) {
      RunCase(1, 0, dtype, index_dtype);
      RunCase(37, 3, dtype, index_dtype);
      RunCase(1024, 0, dtype, index_dtype);
      RunCase(4096, 8, dtype, index_dtype);
    }
  }
}

CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(EmbeddingConformanceTest);

}  // namespace
}  // namespace concert::daemon::conformance
