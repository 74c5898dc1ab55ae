// Norms and gated_activation of every backend against an fp64 reference.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "kernels/group/plan/compiler.h"
#include "tests/conformance/row_ops_fixture.h"

namespace concert::daemon::conformance {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

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

// Two chains of a layer's ops, GEMM, norm, GEMM, gate, GEMM, in five launches that carry an op of
// each. On a GPU a launch starts beside the end of the one before and waits for what it follows.
class ChainConformanceTest : public RowOpsConformanceTest {
 protected:
  static constexpr Dtype kDtype = Dtype::kBf16;
  static constexpr uint32_t kTokens = 48, kHidden = 256, kInner = 384;

  struct Chain {
    uint32_t residual = 0, out = 0;
    Values first_residual, want;
    std::array<Op, 5> ops;
  };

  static Values Multiply(const Values& a, const Values& w, uint32_t n, uint32_t k) {
    Values d(kTokens * n);
    for (uint32_t i = 0; i < kTokens; ++i) {
      for (uint32_t j = 0; j < n; ++j) {
        for (uint32_t p = 0; p < k; ++p) d[i * n + j] += a[i * k + p] * w[j * k + p];
      }
    }
    return Rounded(kDtype, d);
  }
  static Values NewWeights(uint32_t n, uint32_t k, uint64_t seed) {
    Values w = RandomNumbers(kDtype, uint64_t{n} * k, seed);
    for (double& value : w) value *= 0.125;  // exact
    return w;
  }

  Op Gemm(uint32_t a, const Values& w, uint32_t d, uint32_t n, uint32_t k) {
    concert_descriptor descriptor{};
    concert_gemm_body& body = descriptor.body.gemm;
    body.m = kTokens, body.n = n, body.k = k, body.batch = 1;
    body.a.buffer = a, body.w.buffer = NewBuffer(Encode(kDtype, w)), body.d.buffer = d;
    body.lda = body.ldw = k, body.ldd = n;
    body.alpha = 1;
    body.dtype = static_cast<uint8_t>(kDtype);
    return Make(descriptor, CONCERT_OP_GEMM);
  }
  Op Norm(uint32_t x, uint32_t residual, const Values& weight, uint32_t out) {
    concert_descriptor descriptor{};
    descriptor.body.rms_norm =
        RmsNormConformanceTest::BodyOf({{"", kTokens, kHidden}, kDtype, true, false});
    concert_rms_norm_body& body = descriptor.body.rms_norm;
    body.x.buffer = x, body.residual.buffer = residual, body.out.buffer = out;
    body.weight.buffer = NewBuffer(Encode(kDtype, weight));
    return Make(descriptor, CONCERT_OP_RMS_NORM);
  }
  Op Gate(uint32_t x, uint32_t out) {
    concert_descriptor descriptor{};
    concert_gated_activation_body& body = descriptor.body.gated_activation;
    body.rows = kTokens, body.columns = kInner;
    body.x.buffer = x, body.out.buffer = out;
    body.x_stride = 2 * kInner, body.out_stride = kInner;
    body.dtype = static_cast<uint8_t>(kDtype);
    body.activation = CONCERT_ABI_ACT_SILU;
    return Make(descriptor, CONCERT_OP_GATED_ACTIVATION);
  }

  Chain MakeChain(uint64_t seed) {
    const Values x = RandomNumbers(kDtype, kTokens * kHidden, seed);
    const Values weight = RandomNumbers(kDtype, kHidden, seed + 1);
    const Values w_out = NewWeights(kHidden, kHidden, seed + 2);
    const Values w_up = NewWeights(2 * kInner, kHidden, seed + 3);
    const Values w_down = NewWeights(kHidden, kInner, seed + 4);
    Chain chain;
    chain.first_residual = RandomNumbers(kDtype, kTokens * kHidden, seed + 5);
    chain.residual = NewBuffer(Encode(kDtype, chain.first_residual));
    const auto poisoned = [&](uint32_t columns) { return NewPoisoned(kTokens * columns * 2); };
    const uint32_t projected = poisoned(kHidden), normal = poisoned(kHidden),
                   up = poisoned(2 * kInner), gated = poisoned(kInner);
    chain.out = poisoned(kHidden);
    chain.ops = {Gemm(NewBuffer(Encode(kDtype, x)), w_out, projected, kHidden, kHidden),
                 Norm(projected, chain.residual, weight, normal),
                 Gemm(normal, w_up, up, 2 * kInner, kHidden), Gate(up, gated),
                 Gemm(gated, w_down, chain.out, kHidden, kInner)};

    Values sums = Multiply(x, w_out, kHidden, kHidden);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += chain.first_residual[i];
    const Values normals =
        Rounded(kDtype, RmsNormConformanceTest::Expected({{"", kTokens, kHidden}, kDtype},
                                                         Rounded(kDtype, sums), weight));
    const Values wide = Multiply(normals, w_up, 2 * kInner, kHidden);
    Values gates;
    for (uint32_t i = 0; i < kTokens; ++i) {
      for (uint32_t j = 0; j < kInner; ++j) {
        const double* row = wide.data() + i * 2 * kInner;
        gates.push_back(Activate(CONCERT_ABI_ACT_SILU, row[j]) * row[kInner + j]);
      }
    }
    chain.want = Multiply(Rounded(kDtype, gates), w_down, kHidden, kInner);
    return chain;
  }

  // One launch with the chains' ops of this step; Word(i) becomes `value` when that of chain i is
  // done.
  void LaunchStep(std::span<const Chain> chains, int step, uint64_t value) {
    std::vector<const Op*> ops;
    std::vector<TimelineWrite> writes;
    std::vector<kernels::Predecessor> after;
    std::vector<policies::Problem> problems;
    for (const Chain& chain : chains) {
      const auto i = static_cast<uint16_t>(ops.size());
      ops.push_back(&chain.ops[static_cast<size_t>(step)]);
      writes.push_back({WordAddress(i), value});
      after.push_back(step == 0 ? kernels::Predecessor{}
                                : kernels::Predecessor{.launches_back = 1, .op = i});
      problems.push_back(policies::Problem::Of(ops.back()->work));
    }
    const kernels::GroupWorkList* list =
        ops.front()->work.is_gemm() ? compiler_.Compile(problems, 0) : nullptr;
    const absl::Status status =
        gpu().Launch({.planned = {.form = policies::Form::kGroup, .work_list = list},
                      .ops = ops,
                      .writes = writes,
                      .after = after,
                      .inputs_ready = true,
                      .weights_ready = true});
    ASSERT_TRUE(status.ok()) << status;
  }

  kernels::GroupCompiler compiler_{policies::DeviceModel()};
};

TEST_P(ChainConformanceTest, NormsAndGatesFollowGemmsAndAreFollowed) {
  if (!gpu().info().model.group_kernel) GTEST_SKIP() << "no launches follow one another here";
  const std::vector<Chain> chains = {MakeChain(10), MakeChain(20)};
  uint64_t value = 0;
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(round);
    for (const Chain& chain : chains) Write(chain.residual, Encode(kDtype, chain.first_residual));
    for (const Chain& chain : chains) Write(chain.out, Bytes(kTokens * kHidden * 2, kPoison));
    for (int step = 0; step < 5; ++step) {
      ASSERT_NO_FATAL_FAILURE(LaunchStep(chains, step, ++value));
    }
    for (int i = 0; i < 2; ++i) WaitFor(i, value);
    for (const Chain& chain : chains) {
      const Values got = Decode(kDtype, Read(chain.out, kTokens * kHidden * 2));
      EXPECT_LE(RelativeError(got, chain.want), Tolerance(kDtype));
    }
  }
}

CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(ChainConformanceTest);
CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(RmsNormConformanceTest);
CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(LayerNormConformanceTest);
CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(GatedActivationConformanceTest);

}  // namespace
}  // namespace concert::daemon::conformance
