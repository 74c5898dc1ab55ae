// elementwise of every backend against an fp64 reference.
#include <gtest/gtest.h>

#include <array>

#include "tests/conformance/row_ops_fixture.h"

namespace concert::daemon::conformance {
namespace {

class ElementwiseConformanceTest : public RowOpsConformanceTest {
 protected:
  void RunCase(uint8_t function, const Rows& shape, Dtype dtype, Dtype out_dtype, bool one_row) {
    SCOPED_TRACE(testing::Message()
                 << "function " << int{function} << ", " << shape.name << ", dtype "
                 << static_cast<int>(dtype) << " to " << static_cast<int>(out_dtype)
                 << (one_row ? ", one row of y" : ""));
    const uint64_t stride = shape.columns + shape.padding;
    const Values x = MakeRows(shape, dtype, shape.columns, 1);
    const Values y = MakeRows(shape, dtype, shape.columns, 2);
    concert_descriptor descriptor{};
    concert_elementwise_body& body = descriptor.body.elementwise;
    body.rows = shape.rows, body.columns = shape.columns;
    body.x_stride = body.out_stride = stride, body.y_stride = one_row ? 0 : stride;
    body.function = function;
    body.dtype = static_cast<uint8_t>(dtype), body.out_dtype = static_cast<uint8_t>(out_dtype);
    body.x.buffer = NewBuffer(Encode(dtype, x));
    if (function != CONCERT_ABI_CAST) body.y.buffer = NewBuffer(Encode(dtype, y));
    body.out.buffer = NewPoisoned(x.size() * DtypeBytes(out_dtype));
    Run(Make(descriptor, CONCERT_OP_ELEMENTWISE));
    Values want;
    for (uint64_t i = 0; i < x.size(); ++i) {
      if (i % stride >= shape.columns) continue;
      const double other = y[one_row ? i % stride : i];
      const double exact = function == CONCERT_ABI_ADD        ? x[i] + other
                           : function == CONCERT_ABI_MULTIPLY ? x[i] * other
                                                              : x[i];
      want.push_back(exact);
    }
    CheckRows(shape, out_dtype, body.out.buffer, want);
  }
};

TEST_P(ElementwiseConformanceTest, AddsMultipliesAndCasts) {
  constexpr std::array kAll = {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32};
  for (const uint8_t function : {CONCERT_ABI_ADD, CONCERT_ABI_MULTIPLY, CONCERT_ABI_CAST}) {
    for (const Rows& shape : kRowShapes) {
      for (const Dtype dtype : kAll) {
        for (const Dtype out_dtype : kAll) {
          RunCase(function, shape, dtype, out_dtype, /*one_row=*/shape.rows % 2 == 0);
        }
      }
    }
  }
}

CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(ElementwiseConformanceTest);

}  // namespace
}  // namespace concert::daemon::conformance
