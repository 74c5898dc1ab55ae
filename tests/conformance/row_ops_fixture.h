// Rows, gaps between them, and how near to a reference row ops must come.
#ifndef CONCERT_TESTS_CONFORMANCE_ROW_OPS_FIXTURE_H_
#define CONCERT_TESTS_CONFORMANCE_ROW_OPS_FIXTURE_H_

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/conformance/device_fixture.h"

namespace concert::daemon::conformance {

struct Rows {
  const char* name;
  uint32_t rows, columns;
  uint32_t padding = 0;  // of every row, elements
};

// One element; sizes that 16 bytes do not divide; more than a block's threads take at once, more
// than a grid's blocks; gaps that keep rows at multiples of 16 bytes, and such that do not.
inline constexpr Rows kRowShapes[] = {
    {.name = "one_element", .rows = 1, .columns = 1},
    {.name = "odd", .rows = 3, .columns = 37},
    {.name = "decode", .rows = 16, .columns = 4096},
    {.name = "wide", .rows = 2, .columns = 5000, .padding = 8},
    {.name = "padded", .rows = 9, .columns = 64, .padding = 3},
    {.name = "many", .rows = 5000, .columns = 16},
};

inline Values Rounded(Dtype dtype, const Values& values) {
  return Decode(dtype, Encode(dtype, values));
}
inline double Rounded(Dtype dtype, double value) { return Rounded(dtype, Values{value})[0]; }

// One rounding of a result that is computed in fp32, and of values at both ends of a sum.
inline double ToleranceOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBf16:
      return 4e-3;
    case Dtype::kFp16:
      return 5e-4;
    default:
      return 1e-5;
  }
}

// What rounding takes of a result that is so small that it has fewer digits: half of fp16's
// smallest number. Those of the other dtypes are far smaller than any result here.
inline double UnderflowOf(Dtype dtype) { return dtype == Dtype::kFp16 ? std::ldexp(1, -25) : 0; }

class RowOpsConformanceTest : public DeviceTest {
 protected:
  // Rows as they lie in memory, gaps among them.
  static Values MakeRows(const Rows& shape, Dtype dtype, uint64_t columns, uint64_t seed) {
    return RandomNumbers(dtype, shape.rows * (columns + shape.padding), seed);
  }
  // The rows of `buffer` are near `want`; what lies between them is as it was, poison.
  void CheckRows(const Rows& shape, Dtype dtype, uint32_t buffer, const Values& want,
                 double tolerance = 0) {
    const uint64_t stride = shape.columns + shape.padding;
    const Values all = Decode(dtype, Read(buffer, shape.rows * stride * DtypeBytes(dtype)));
    Values got;
    for (uint64_t i = 0; i < all.size(); ++i) {
      if (i % stride < shape.columns) {
        got.push_back(all[i]);
      } else {
        ASSERT_TRUE(std::isnan(all[i])) << "gap at " << i << " was written";
      }
    }
    EXPECT_LE(RelativeError(got, want, UnderflowOf(dtype)),
              tolerance > 0 ? tolerance : ToleranceOf(dtype));
  }
  Op Make(concert_descriptor& descriptor, uint16_t kind) {
    descriptor.kind = kind;
    return Admit(descriptor);
  }
};

}  // namespace concert::daemon::conformance

#endif  // CONCERT_TESTS_CONFORMANCE_ROW_OPS_FIXTURE_H_
