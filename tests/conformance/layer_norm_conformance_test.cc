// layer_norm of every backend against an fp64 reference.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/conformance/row_ops_fixture.h"

namespace concert::daemon::conformance {
namespace {

class LayerNormConformanceTest : public RowOpsConformanceTest {
 protected:
  struct Case {
    Rows shape;
    Dtype dtype;
    bool residual, bias;
    double mean = 0;       // of x, beside which its elements vary by 1
    double tolerance = 0;  // 0: ToleranceOf
  };

  void RunCase(const Case& test) {
    SCOPED_TRACE(std::string(test.shape.name) + ", dtype " +
                 std::to_string(static_cast<int>(test.dtype)) +
                 (test.residual ? ", residual" : "") + (test.bias ? ", bias" : ""));
    const Rows& shape = test.shape;
    const uint64_t stride = shape.columns + shape.padding;
    Values x = MakeRows(shape, test.dtype, shape.columns, 1);
    for (double& value : x) value += test.mean;
    x = Rounded(test.dtype, x);
    const Values residual = MakeRows(shape, test.dtype, shape.columns, 2);
    const Values weight = RandomNumbers(test.dtype, shape.columns, 3);
    const Values bias = RandomNumbers(test.dtype, shape.columns, 4);
    concert_descriptor descriptor{};
    concert_layer_norm_body& body = descriptor.body.layer_norm;
    body.rows = shape.rows, body.columns = shape.columns;
    body.x_stride = body.residual_stride = body.out_stride = stride;
    body.epsilon = 1e-2f;
    body.dtype = static_cast<uint8_t>(test.dtype);
    body.x.buffer = NewBuffer(Encode(test.dtype, x));
    body.weight.buffer = NewBuffer(Encode(test.dtype, weight));
    if (test.bias) body.bias.buffer = NewBuffer(Encode(test.dtype, bias));
    if (test.residual) body.residual.buffer = NewBuffer(Encode(test.dtype, residual));
    body.out.buffer = NewPoisoned(x.size() * DtypeBytes(test.dtype));
    Run(Make(descriptor, CONCERT_OP_LAYER_NORM));

    Values sums = x, want;
    for (size_t i = 0; i < sums.size() && test.residual; ++i) sums[i] += residual[i];
    sums = Rounded(test.dtype, sums);
    for (uint64_t row = 0; row < shape.rows; ++row) {
      const double* const input = sums.data() + row * stride;
      double mean = 0, variance = 0;
      for (uint64_t i = 0; i < shape.columns; ++i) mean += input[i] / shape.columns;
      for (uint64_t i = 0; i < shape.columns; ++i) {
        variance += std::pow(input[i] - mean, 2) / shape.columns;
      }
      for (uint64_t i = 0; i < shape.columns; ++i) {
        want.push_back((input[i] - mean) / std::sqrt(variance + body.epsilon) * weight[i] +
                       (test.bias ? bias[i] : 0));
      }
    }
    // Of one element the norm is 0, and what bias there is.
    if (shape.columns > 1 || test.bias) {
      CheckRows(shape, test.dtype, body.out.buffer, want, test.tolerance);
    }
    if (!test.residual) return;
    const Values got =
        Decode(test.dtype, Read(body.residual.buffer, sums.size() * DtypeBytes(test.dtype)));
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], i % stride < shape.columns ? sums[i] : residual[i]) << "element " << i;
    }
  }
};

TEST_P(LayerNormConformanceTest, MatchesTheReference) {
  for (const Rows& shape : kRowShapes) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32}) {
      for (const bool residual : {false, true}) {
        for (const bool bias : {false, true}) RunCase({shape, dtype, residual, bias});
      }
    }
  }
}

// fp32's sum of squares would say nothing of the variance.
TEST_P(LayerNormConformanceTest, AMeanFarFromZeroLeavesTheVariance) {
  RunCase({{"far", 3, 1000}, Dtype::kFp32, false, true, 1000, 1e-3});
}

CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(LayerNormConformanceTest);

}  // namespace
}  // namespace concert::daemon::conformance
