// rms_norm of every backend against an fp64 reference.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/conformance/row_ops_fixture.h"

namespace concert::daemon::conformance {
namespace {

class RmsNormConformanceTest : public RowOpsConformanceTest {
 public:
  struct Case {
    Rows shape;
    Dtype dtype;
    bool residual = false, cast_first = false;
    float epsilon = 1e-2f;
  };

  static concert_rms_norm_body BodyOf(const Case& test) {
    concert_rms_norm_body body{};
    body.rows = test.shape.rows;
    body.columns = test.shape.columns;
    body.x_stride = body.residual_stride = body.out_stride =
        test.shape.columns + test.shape.padding;
    body.epsilon = test.epsilon;
    body.dtype = static_cast<uint8_t>(test.dtype);
    body.flags = test.cast_first ? CONCERT_RMS_NORM_CAST_FIRST : 0;
    return body;
  }

  static Values Expected(const Case& test, const Values& input, const Values& weight) {
    const uint64_t columns = test.shape.columns, stride = columns + test.shape.padding;
    Values want;
    for (uint64_t row = 0; row < test.shape.rows; ++row) {
      double squares = 0;
      for (uint64_t i = 0; i < columns; ++i) squares += std::pow(input[row * stride + i], 2);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(columns) + test.epsilon);
      for (uint64_t i = 0; i < columns; ++i) {
        const double normal = input[row * stride + i] * scale;
        want.push_back((test.cast_first ? Rounded(test.dtype, normal) : normal) * weight[i]);
      }
    }
    return want;
  }

 protected:
  void RunCase(const Case& test) {
    SCOPED_TRACE(std::string(test.shape.name) + ", dtype " +
                 std::to_string(static_cast<int>(test.dtype)) +
                 (test.residual ? ", residual" : "") + (test.cast_first ? ", cast first" : ""));
    const Values x = MakeRows(test.shape, test.dtype, test.shape.columns, 1);
    const Values residual = MakeRows(test.shape, test.dtype, test.shape.columns, 2);
    const Values weight = RandomNumbers(test.dtype, test.shape.columns, 3);
    Values sums = x;
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += residual[i];
    sums = Rounded(test.dtype, sums);

    const concert_rms_norm_body body = RunOn(test, x, residual, weight);
    CheckRows(test.shape, test.dtype, body.out.buffer,
              Expected(test, test.residual ? sums : x, weight));
    if (test.residual) CheckResidual(test, body.residual.buffer, sums, residual);
  }

  // Runs `test` on these numbers in new buffers.
  concert_rms_norm_body RunOn(const Case& test, const Values& x, const Values& residual,
                              const Values& weight) {
    concert_descriptor descriptor{};
    concert_rms_norm_body& body = descriptor.body.rms_norm = BodyOf(test);
    body.x.buffer = NewBuffer(Encode(test.dtype, x));
    body.weight.buffer = NewBuffer(Encode(test.dtype, weight));
    body.out.buffer = NewPoisoned(x.size() * DtypeBytes(test.dtype));
    if (test.residual) body.residual.buffer = NewBuffer(Encode(test.dtype, residual));
    Run(Make(descriptor, CONCERT_OP_RMS_NORM));
    return body;
  }

  struct Outcome {
    Values out, sums;  // sums: the residual afterwards
  };
  // Without gaps.
  Outcome Normalise(const Case& test, const Values& x, const Values& residual,
                    const Values& weight) {
    const concert_rms_norm_body body = RunOn(test, x, residual, weight);
    const auto values = [&](uint32_t buffer) {
      return Decode(test.dtype, Read(buffer, x.size() * DtypeBytes(test.dtype)));
    };
    return {values(body.out.buffer), test.residual ? values(body.residual.buffer) : Values()};
  }
  static Values Ones() { return Values(8, 1.0); }

  // Every element exactly: sums of two numbers have one right rounding. Gaps keep what they had.
  void CheckResidual(const Case& test, uint32_t buffer, const Values& sums, const Values& before) {
    const uint64_t columns = test.shape.columns, stride = columns + test.shape.padding;
    const Values got = Decode(test.dtype, Read(buffer, sums.size() * DtypeBytes(test.dtype)));
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], i % stride < columns ? sums[i] : before[i]) << "element " << i;
    }
  }
};

TEST_P(RmsNormConformanceTest, MatchesTheReference) {
  for (const Rows& shape : kRowShapes) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32}) {
      for (const bool residual : {false, true}) {
        for (const bool cast_first : {false, true}) {
          RunCase({shape, dtype, residual, cast_first});
        }
      }
    }
  }
}

TEST_P(RmsNormConformanceTest, InPlaceGivesTheSameBits) {
  const Case test{{"in_place", 7, 1000}, Dtype::kBf16, false, false};
  const Values x = MakeRows(test.shape, test.dtype, test.shape.columns, 1);
  const uint32_t weight = NewBuffer(Encode(test.dtype, RandomNumbers(test.dtype, 1000, 3)));
  std::vector<Bytes> results;
  for (const bool in_place : {false, true}) {
    concert_descriptor descriptor{};
    concert_rms_norm_body& body = descriptor.body.rms_norm = BodyOf(test);
    body.x.buffer = NewBuffer(Encode(test.dtype, x));
    body.weight.buffer = weight;
    body.out.buffer = in_place ? body.x.buffer : NewPoisoned(x.size() * 2);
    Run(Make(descriptor, CONCERT_OP_RMS_NORM));
    results.push_back(Read(body.out.buffer, x.size() * 2));
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_P(RmsNormConformanceTest, NanAndInfinityStayInTheirRow) {
  for (const bool residual : {false, true}) {
    for (const bool cast_first : {false, true}) {
      SCOPED_TRACE(testing::Message() << "residual " << residual << ", cast first " << cast_first);
      Values x(24, 1.0);
      x[3] = kNan;
      x[8 + 3] = kInf;
      const auto [out, sums] = Normalise({{"special", 3, 8}, Dtype::kBf16, residual, cast_first, 0},
                                         x, Values(24, 0.0), Ones());
      for (int i = 0; i < 8; ++i) {
        EXPECT_TRUE(std::isnan(out[i])) << i;            // the mean is NaN
        EXPECT_EQ(std::isnan(out[8 + i]), i == 3) << i;  // inf / inf; else 1 / inf
        EXPECT_EQ(out[16 + i], 1) << i;
      }
    }
  }
}

TEST_P(RmsNormConformanceTest, NanAndInfinityOfTheResidualStayInTheirRow) {
  for (const bool cast_first : {false, true}) {
    Values x(32, 0.0), residual(32, 1.0);
    residual[2] = kNan;
    residual[8 + 2] = -kInf;
    residual[16 + 2] = -kInf, x[16 + 2] = kInf;
    const auto [out, sums] =
        Normalise({{"special", 4, 8}, Dtype::kBf16, true, cast_first, 0}, x, residual, Ones());
    for (int i = 0; i < 8; ++i) {
      EXPECT_TRUE(std::isnan(out[i])) << i;
      EXPECT_EQ(std::isnan(sums[i]), i == 2) << i;
      EXPECT_EQ(std::isnan(out[8 + i]), i == 2) << i;
      EXPECT_EQ(sums[8 + i], i == 2 ? -kInf : 1) << i;
      EXPECT_TRUE(std::isnan(out[16 + i])) << i;  // inf - inf
      EXPECT_EQ(out[24 + i], 1) << i;
    }
  }
}

// The sum is rounded to the dtype before it is normalised: beyond fp16's largest number it is inf.
TEST_P(RmsNormConformanceTest, AResidualThatOverflowsIsInfinite) {
  Values x(16, 1.0), residual(16, 0.0);
  x[0] = residual[0] = 65504;
  const auto [out, sums] =
      Normalise({{"special", 2, 8}, Dtype::kFp16, true, false, 0}, x, residual, Ones());
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(sums[i], i == 0 ? kInf : 1) << i;
    EXPECT_EQ(std::isnan(out[i]), i == 0) << i;
    EXPECT_EQ(out[8 + i], 1) << i;
  }
}

TEST_P(RmsNormConformanceTest, NanAndInfinityOfTheWeightStayInTheirColumn) {
  for (const bool cast_first : {false, true}) {
    Values x(24, 1.0), weight = Ones();
    for (int i = 0; i < 8; ++i) x[8 + i] = -1, x[16 + i] = 0;
    weight[2] = kNan, weight[5] = -kInf;
    const auto [out, sums] =
        Normalise({{"special", 3, 8}, Dtype::kBf16, false, cast_first, 1}, x, {}, weight);
    for (int i = 0; i < 24; ++i) {
      const double sign = i < 8 ? 1 : i < 16 ? -1 : 0;
      if (i % 8 == 2 || i == 16 + 5) {
        EXPECT_TRUE(std::isnan(out[i])) << i;  // 0 times inf is NaN
      } else if (i % 8 == 5) {
        EXPECT_EQ(out[i], sign * -kInf) << i;
      } else {
        EXPECT_EQ(std::signbit(out[i]), sign < 0) << i;
        EXPECT_EQ(out[i] == 0, sign == 0) << i;
      }
    }
  }
}

CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(RmsNormConformanceTest);

}  // namespace
}  // namespace concert::daemon::conformance
