// argmax of every backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/conformance/model_ops_fixture.h"

namespace concert::daemon::conformance {
namespace {

class ArgmaxConformanceTest : public ModelOpsConformanceTest {
 protected:
  // What it says of rows of x, of which each begins `columns` + `padding` behind the one before.
  Indices RunOn(uint32_t rows, uint32_t columns, uint32_t padding, Dtype dtype, uint8_t index_dtype,
                const Values& x) {
    concert_descriptor descriptor{};
    concert_argmax_body& body = descriptor.body.argmax;
    body.rows = rows, body.columns = columns, body.x_stride = columns + padding;
    body.dtype = static_cast<uint8_t>(dtype), body.index_dtype = index_dtype;
    body.x.buffer = NewBuffer(Encode(dtype, x));
    const uint64_t bytes = (rows + 1) * IndexBytes(index_dtype);
    body.indices.buffer = NewPoisoned(bytes);
    RunKind(descriptor, CONCERT_OP_ARGMAX);
    Indices indices = DecodeIndices(index_dtype, Read(body.indices.buffer, bytes));
    EXPECT_EQ(indices.back(), -1) << "what lies behind was written";
    indices.pop_back();
    return indices;
  }
};

TEST_P(ArgmaxConformanceTest, FindsTheFirstOfTheLargest) {
  constexpr uint32_t kRows = 5;
  for (const Dtype dtype : kElementTypes) {
    for (const uint8_t index_dtype : kIndexDtypes) {
      for (const uint32_t columns : {1u, 37u, 4096u, 32003u}) {
        for (const uint32_t padding : {0u, 5u}) {
          SCOPED_TRACE(testing::Message() << columns << " columns, padding " << padding);
          const uint64_t stride = columns + padding;
          // Far more elements than numbers, so that there are equals; larger ones lie between rows.
          Values x = RandomNumbers(dtype, kRows * stride, 1);
          Indices want;
          for (uint64_t row = 0; row < kRows; ++row) {
            const auto begin = x.begin() + static_cast<int64_t>(row * stride);
            for (auto i = begin; i != begin + columns; ++i) *i = std::round(*i * 8) / 8;
            std::fill(begin + columns, begin + static_cast<int64_t>(stride), 9.0);
            want.push_back(std::max_element(begin, begin + columns) - begin);
          }
          EXPECT_EQ(RunOn(kRows, columns, padding, dtype, index_dtype, x), want);
        }
      }
    }
  }
}

TEST_P(ArgmaxConformanceTest, NanIsTheLargestAndZerosAreEqual) {
  constexpr double kNone = -kInf;
  for (const Dtype dtype : kElementTypes) {
    const Values x = {
        kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone,  //
        1,     kInf,  kNan,  2,     kInf,  -kNan, 3,     4,      //
        -1,    -2,    -0.0,  0.0,   -0.0,  -3,    -4,    -5,     //
        -5,    -4,    -3,    -2,    -1,    -2,    -3,    -1,
    };
    EXPECT_EQ(RunOn(4, 8, 0, dtype, CONCERT_ABI_INT32, x), (Indices{0, 2, 2, 4}));
  }
}

CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(ArgmaxConformanceTest);

}  // namespace
}  // namespace concert::daemon::conformance
