// gated_activation of every backend against an fp64 reference.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/conformance/row_ops_fixture.h"

namespace concert::daemon::conformance {
namespace {

class GatedActivationConformanceTest : public RowOpsConformanceTest {
 protected:
  void RunCase(const Rows& shape, Dtype dtype, uint8_t activation, bool interleaved) {
    SCOPED_TRACE(std::string(shape.name) + ", dtype " + std::to_string(static_cast<int>(dtype)) +
                 ", activation " + std::to_string(activation) +
                 (interleaved ? ", interleaved" : ""));
    const uint64_t columns = shape.columns, stride = 2 * columns + shape.padding;
    Values x = MakeRows(shape, dtype, 2 * columns, 4);
    Values want;
    for (uint64_t row = 0; row < shape.rows; ++row) {
      for (uint64_t i = 0; i < columns; ++i) {
        const double gate = x[row * stride + (interleaved ? 2 * i : i)];
        const double up = x[row * stride + (interleaved ? 2 * i + 1 : columns + i)];
        want.push_back(Activate(activation, gate) * up);
      }
    }
    CheckRows(shape, dtype, RunOn(shape, dtype, activation, interleaved, x), want);
  }

  // The buffer of out, rows at a distance of columns and padding.
  uint32_t RunOn(const Rows& shape, Dtype dtype, uint8_t activation, bool interleaved,
                 const Values& x) {
    concert_descriptor descriptor{};
    concert_gated_activation_body& body = descriptor.body.gated_activation;
    body.rows = shape.rows, body.columns = shape.columns;
    body.x_stride = 2 * uint64_t{shape.columns} + shape.padding;
    body.out_stride = shape.columns + shape.padding;
    body.dtype = static_cast<uint8_t>(dtype);
    body.activation = activation;
    body.flags = interleaved ? CONCERT_GATED_INTERLEAVED : 0;
    body.x.buffer = NewBuffer(Encode(dtype, x));
    body.out.buffer = NewPoisoned(shape.rows * body.out_stride * DtypeBytes(dtype));
    Run(Make(descriptor, CONCERT_OP_GATED_ACTIVATION));
    return body.out.buffer;
  }
};

TEST_P(GatedActivationConformanceTest, MatchesTheReference) {
  for (const Rows& shape : kRowShapes) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32}) {
      for (const uint8_t activation : {CONCERT_ABI_ACT_GELU, CONCERT_ABI_ACT_SILU}) {
        for (const bool interleaved : {false, true}) RunCase(shape, dtype, activation, interleaved);
      }
    }
  }
}

TEST_P(GatedActivationConformanceTest, ThreadsTakeSeveralPacksAtOnceAndAgain) {
  // Four elements a pack: twice as many as a launch has threads, and some more.
  constexpr Rows kLarge = {.name = "a prompt", .rows = 1100, .columns = 1928, .padding = 4};
  for (const bool interleaved : {false, true})
    RunCase(kLarge, Dtype::kFp32, CONCERT_ABI_ACT_SILU, interleaved);
}

TEST_P(GatedActivationConformanceTest, NanAndInfinityStayInTheirElement) {
  // -inf: -inf / (1 + exp(inf)), and half of -inf times 1 + tanh(-inf).
  struct Special {
    double gate, up, out;  // out 1: whatever two ones give
  };
  constexpr Special kSpecial[] = {
      {1, 1, 1},       {kNan, 1, kNan},   {1, kNan, kNan},  {kInf, 1, kInf}, {kInf, -1, -kInf},
      {0, kInf, kNan}, {1, -kInf, -kInf}, {-kInf, 1, kNan}, {1, 1, 1},
  };
  constexpr uint32_t kColumns = std::size(kSpecial);
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32}) {
    for (const uint8_t activation : {CONCERT_ABI_ACT_GELU, CONCERT_ABI_ACT_SILU}) {
      for (const bool interleaved : {false, true}) {
        Values x(2 * kColumns);
        for (uint32_t i = 0; i < kColumns; ++i) {
          x[interleaved ? 2 * i : i] = kSpecial[i].gate;
          x[interleaved ? 2 * i + 1 : kColumns + i] = kSpecial[i].up;
        }
        const uint32_t buffer = RunOn({"special", 1, kColumns}, dtype, activation, interleaved, x);
        const Values out = Decode(dtype, Read(buffer, kColumns * DtypeBytes(dtype)));
        for (uint32_t i = 0; i < kColumns; ++i) {
          SCOPED_TRACE(testing::Message()
                       << "element " << i << ", dtype " << static_cast<int>(dtype)
                       << ", activation " << static_cast<int>(activation));
          if (std::isnan(kSpecial[i].out)) {
            EXPECT_TRUE(std::isnan(out[i])) << out[i];
          } else if (std::isinf(kSpecial[i].out)) {
            EXPECT_EQ(out[i], kSpecial[i].out);
          } else {
            EXPECT_NEAR(out[i], Activate(activation, 1), ToleranceOf(dtype));
          }
        }
      }
    }
  }
}

CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(GatedActivationConformanceTest);

}  // namespace
}  // namespace concert::daemon::conformance
