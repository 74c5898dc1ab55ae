// GEMMs of every backend against an fp64 reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/conformance/device_fixture.h"

namespace concert::daemon::conformance {
namespace {

enum class Scales { kNone, kPerTensor, kPerRow };

struct GemmCase {
  const char* name;
  uint32_t m, n, k;
  uint32_t batch = 1;
  uint32_t padding = 0;  // of every row, elements
  float alpha = 1, beta = 0;
  bool bias = false;
  bool in_place = false;                         // C is D
  bool shared_w = false;                         // one W for the whole batch
  bool interleaved = false;                      // D as [m, batch, n], as heads of attention
  bool residual = false;                         // C is added behind the activation
  bool row_scales = false;                       // A has one per row, whatever its dtype
  bool gated = false, gate_interleaved = false;  // n are the product's columns

  uint32_t d_columns() const { return gated ? n / 2 : n; }
  // fp8 only.
  Scales a_scales = Scales::kPerTensor, w_scales = Scales::kPerTensor;
  bool fp16_d = false;  // else bf16
};

// Sizes around tile edges, one element, and long K.
constexpr GemmCase kCases[] = {
    {.name = "one_element", .m = 1, .n = 1, .k = 1},
    {.name = "odd_sizes", .m = 65, .n = 127, .k = 33},
    {.name = "gemv", .m = 1, .n = 301, .k = 1000},
    {.name = "aligned", .m = 128, .n = 256, .k = 64, .alpha = 0.5f},
    {.name = "padded_rows", .m = 31, .n = 17, .k = 48, .padding = 8},
    {.name = "bias", .m = 40, .n = 72, .k = 24, .bias = true},
    {.name = "beta", .m = 48, .n = 40, .k = 96, .padding = 3, .alpha = -1.5f, .beta = 0.75f},
    {.name = "in_place_beta_bias",
     .m = 33,
     .n = 64,
     .k = 64,
     .beta = 1,
     .bias = true,
     .in_place = true},
    {.name = "batch", .m = 19, .n = 24, .k = 40, .batch = 5, .beta = 2, .bias = true},
    {.name = "batch_shared_w", .m = 16, .n = 24, .k = 40, .batch = 3, .shared_w = true},
    {.name = "batch_interleaved", .m = 16, .n = 32, .k = 64, .batch = 4, .interleaved = true},
    {.name = "long_k", .m = 20, .n = 260, .k = 1500},
    {.name = "row_scales",
     .m = 37,
     .n = 48,
     .k = 64,
     .beta = 0.5f,
     .bias = true,
     .row_scales = true},
    {.name = "row_scales_of_many",
     .m = 300,
     .n = 24,
     .k = 40,
     .padding = 3,
     .alpha = -0.5f,
     .row_scales = true},
    {.name = "row_scales_batch",
     .m = 19,
     .n = 24,
     .k = 40,
     .batch = 3,
     .beta = 1,
     .bias = true,
     .residual = true,
     .row_scales = true},
    {.name = "residual", .m = 37, .n = 48, .k = 64, .beta = 1, .bias = true, .residual = true},
    {.name = "padded_residual_beta",
     .m = 130,
     .n = 72,
     .k = 40,
     .padding = 3,
     .alpha = 0.5f,
     .beta = -1.25f,
     .residual = true},
    {.name = "residual_in_place",
     .m = 33,
     .n = 64,
     .k = 64,
     .beta = 1,
     .in_place = true,
     .residual = true},
    {.name = "residual_batch",
     .m = 19,
     .n = 24,
     .k = 40,
     .batch = 3,
     .beta = 1,
     .bias = true,
     .residual = true},
};

// D is half as wide as the product. Sizes around the edges of blocks of the CPU's and of tiles.
constexpr GemmCase kGatedCases[] = {
    {.name = "gated_pair", .m = 5, .n = 2, .k = 16, .gated = true},
    {.name = "gated", .m = 65, .n = 134, .k = 33, .bias = true, .gated = true},
    {.name = "gated_wide", .m = 17, .n = 1036, .k = 520, .padding = 3, .gated = true},
    {.name = "gated_aligned",
     .m = 128,
     .n = 256,
     .k = 64,
     .alpha = 0.5f,
     .bias = true,
     .gated = true},
    {.name = "gated_by_turns",
     .m = 33,
     .n = 530,
     .k = 64,
     .padding = 5,
     .alpha = -1.5f,
     .bias = true,
     .gated = true,
     .gate_interleaved = true},
    {.name = "gated_rows_scaled",
     .m = 40,
     .n = 96,
     .k = 64,
     .bias = true,
     .row_scales = true,
     .gated = true,
     .gate_interleaved = true},
    {.name = "gated_batch", .m = 19, .n = 48, .k = 40, .batch = 3, .bias = true, .gated = true},
    {.name = "gated_batch_interleaved",
     .m = 16,
     .n = 64,
     .k = 64,
     .batch = 4,
     .shared_w = true,
     .interleaved = true,
     .gated = true},
    {.name = "gated_scales_of_w",
     .m = 16,
     .n = 64,
     .k = 64,
     .gated = true,
     .w_scales = Scales::kPerRow},
};

// What only fp8 has: every combination of scales, both kinds of D.
constexpr GemmCase kFp8Cases[] = {
    {.name = "no_scales",
     .m = 48,
     .n = 64,
     .k = 96,
     .a_scales = Scales::kNone,
     .w_scales = Scales::kNone},
    {.name = "scales_per_row",
     .m = 64,
     .n = 80,
     .k = 128,
     .bias = true,
     .a_scales = Scales::kPerRow,
     .w_scales = Scales::kPerRow},
    {.name = "scales_of_a_per_row",
     .m = 33,
     .n = 48,
     .k = 64,
     .beta = 0.5f,
     .a_scales = Scales::kPerRow},
    {.name = "scales_of_w_per_row",
     .m = 16,
     .n = 272,
     .k = 48,
     .a_scales = Scales::kNone,
     .w_scales = Scales::kPerRow,
     .fp16_d = true},
    {.name = "tails_per_row",
     .m = 3,
     .n = 259,
     .k = 517,
     .padding = 5,
     .alpha = -2,
     .beta = 1,
     .bias = true,
     .a_scales = Scales::kPerRow,
     .w_scales = Scales::kPerRow,
     .fp16_d = true},
    {.name = "batch_shares_scales",
     .m = 16,
     .n = 32,
     .k = 64,
     .batch = 3,
     .a_scales = Scales::kPerRow,
     .w_scales = Scales::kPerRow},
};

class GemmConformanceTest : public DeviceTest {
 protected:
  struct Data {
    std::vector<double> a, w, c, bias, a_scales, w_scales;
  };

  static Dtype OutputOf(const concert_gemm_body& body) {
    return static_cast<Dtype>(body.d_dtype != 0 ? body.d_dtype : body.dtype);
  }

  static concert_gemm_body BodyOf(const GemmCase& test, Dtype dtype, uint8_t activation) {
    concert_gemm_body body{};
    body.m = test.m;
    body.n = test.n;
    body.k = test.k;
    body.batch = test.batch;
    body.lda = body.ldw = test.k + test.padding;
    const uint32_t columns = test.d_columns();
    body.ldc = columns + test.padding;
    body.ldd = test.interleaved ? uint64_t{columns} * test.batch : columns + test.padding;
    body.stride_a = body.lda * test.m;
    body.stride_w = test.shared_w ? 0 : body.ldw * test.n;
    body.stride_c = body.ldc * test.m;
    body.stride_d = test.interleaved ? columns : body.ldd * test.m;
    body.alpha = test.alpha;
    body.beta = test.beta;
    body.dtype = static_cast<uint8_t>(dtype);
    body.activation = activation;
    if (test.residual) body.flags |= CONCERT_GEMM_RESIDUAL;
    if (test.gated) body.flags |= CONCERT_GEMM_GATED;
    if (test.gate_interleaved) body.flags |= CONCERT_GEMM_GATE_INTERLEAVED;
    if (dtype == Dtype::kFp8E4m3) body.d_dtype = test.fp16_d ? CONCERT_ABI_FP16 : CONCERT_ABI_BF16;
    if (ScalesOfA(test, dtype) == Scales::kPerRow) body.flags |= CONCERT_GEMM_A_SCALES_PER_ROW;
    if (ScalesOfW(test, dtype) == Scales::kPerRow) body.flags |= CONCERT_GEMM_W_SCALES_PER_ROW;
    return body;
  }

  static Scales ScalesOfA(const GemmCase& test, Dtype dtype) {
    if (test.row_scales) return Scales::kPerRow;
    return dtype == Dtype::kFp8E4m3 ? test.a_scales : Scales::kNone;
  }
  static Scales ScalesOfW(const GemmCase& test, Dtype dtype) {
    return dtype == Dtype::kFp8E4m3 ? test.w_scales : Scales::kNone;
  }

  // Between 1/8 and 2.
  static std::vector<double> MakeScales(Scales scales, uint32_t rows, uint64_t seed) {
    if (scales == Scales::kNone) return {};
    std::vector<double> values =
        RandomNumbers(Dtype::kFp32, scales == Scales::kPerRow ? rows : 1, seed);
    for (double& value : values) value = std::max(0.125, 2 * std::fabs(value));
    return values;
  }

  static Data MakeData(const GemmCase& test, const concert_gemm_body& body, Dtype dtype) {
    return {.a = RandomNumbers(dtype, body.lda * test.m * test.batch, 11),
            .w = RandomNumbers(dtype, body.ldw * test.n * test.batch, 12),
            .c = RandomNumbers(OutputOf(body), body.ldc * test.m * test.batch, 13),
            .bias = RandomNumbers(OutputOf(body), test.n, 14),
            .a_scales = MakeScales(ScalesOfA(test, dtype), test.m, 15),
            .w_scales = MakeScales(ScalesOfW(test, dtype), test.n, 16)};
  }

  // Puts operands into buffers of their own, D poisoned, and admits.
  Op MakeOp(const GemmCase& test, concert_gemm_body body, Dtype dtype, const Data& data) {
    const Dtype output = OutputOf(body);
    const uint64_t d_bytes =
        body.ldd * test.m * (test.interleaved ? 1 : test.batch) * DtypeBytes(output);
    body.a.buffer = NewBuffer(Encode(dtype, data.a));
    body.w.buffer = NewBuffer(Encode(dtype, data.w));
    body.d.buffer = test.in_place ? NewBuffer(Encode(output, data.c)) : NewPoisoned(d_bytes);
    if (test.in_place) body.c.buffer = body.d.buffer;
    if (!test.in_place && test.beta != 0) body.c.buffer = NewBuffer(Encode(output, data.c));
    if (test.bias) body.bias.buffer = NewBuffer(Encode(output, data.bias));
    if (!data.a_scales.empty()) body.a.scales = NewBuffer(Encode(Dtype::kFp32, data.a_scales));
    if (!data.w_scales.empty()) body.w.scales = NewBuffer(Encode(Dtype::kFp32, data.w_scales));
    d_buffer_ = body.d.buffer;
    d_elements_ = d_bytes / DtypeBytes(output);
    concert_descriptor descriptor{};
    descriptor.kind = CONCERT_OP_GEMM;
    descriptor.body.gemm = body;
    return Admit(descriptor);
  }

  static double ScaleOf(const std::vector<double>& scales, uint64_t row) {
    if (scales.empty()) return 1;
    return scales[scales.size() == 1 ? 0 : row];
  }

  static double Expected(const GemmCase& test, const concert_gemm_body& body, const Data& data,
                         uint64_t b, uint64_t i, uint64_t j) {
    if (!test.gated) return ExpectedOfColumn(test, body, data, b, i, j);
    const uint64_t gate = test.gate_interleaved ? 2 * j : j;
    const uint64_t up = test.gate_interleaved ? 2 * j + 1 : j + test.n / 2;
    concert_gemm_body plain = body;
    plain.activation = CONCERT_ABI_ACT_NONE;
    return ExpectedOfColumn(test, body, data, b, i, gate) *
           ExpectedOfColumn(test, plain, data, b, i, up);
  }

  static double ExpectedOfColumn(const GemmCase& test, const concert_gemm_body& body,
                                 const Data& data, uint64_t b, uint64_t i, uint64_t j) {
    double sum = 0;
    for (uint64_t p = 0; p < test.k; ++p) {
      sum += data.a[b * body.stride_a + i * body.lda + p] *
             data.w[b * body.stride_w + j * body.ldw + p];
    }
    sum *= test.alpha * ScaleOf(data.a_scales, i) * ScaleOf(data.w_scales, j);
    const double addend =
        test.beta != 0 ? test.beta * data.c[b * body.stride_c + i * body.ldc + j] : 0;
    if (test.bias) sum += data.bias[j];
    return test.residual ? Activate(body.activation, sum) + addend
                         : Activate(body.activation, sum + addend);
  }

  // D's elements are right, and what lies between its rows is untouched.
  void CheckD(const GemmCase& test, const concert_gemm_body& body, Dtype dtype, const Data& data) {
    const Dtype output = OutputOf(body);
    const std::vector<double> d = Decode(output, Read(d_buffer_, d_elements_ * DtypeBytes(output)));
    std::vector<bool> written(d.size(), false);
    std::vector<double> got, want;
    for (uint64_t b = 0; b < test.batch; ++b) {
      for (uint64_t i = 0; i < test.m; ++i) {
        for (uint64_t j = 0; j < test.d_columns(); ++j) {
          const uint64_t at = b * body.stride_d + i * body.ldd + j;
          written[at] = true;
          got.push_back(d[at]);
          want.push_back(Expected(test, body, data, b, i, j));
        }
      }
    }
    EXPECT_LE(RelativeError(got, want), Tolerance(dtype));
    for (size_t at = 0; at < d.size(); ++at) {
      if (written[at]) continue;
      ASSERT_TRUE(test.in_place ? d[at] == data.c[at] : std::isnan(d[at]))
          << "gap at " << at << " was written";
    }
  }

  void RunAllActivations(const GemmCase& test, Dtype dtype) {
    for (uint8_t activation = CONCERT_ABI_ACT_NONE; activation <= CONCERT_ABI_ACT_SILU;
         ++activation) {
      SCOPED_TRACE(std::string(test.name) + ", dtype " + std::to_string(static_cast<int>(dtype)) +
                   ", activation " + std::to_string(activation));
      // One element can be near 0 after relu or by chance: no scale to be relative to.
      if (test.m * test.n == 1 && activation != CONCERT_ABI_ACT_NONE) continue;
      if (test.gated && activation < CONCERT_ABI_ACT_GELU) continue;  // no gate's
      const concert_gemm_body body = BodyOf(test, dtype, activation);
      const Data data = MakeData(test, body, dtype);
      Run(MakeOp(test, body, dtype, data));
      CheckD(test, body, dtype, data);
    }
  }

  uint32_t d_buffer_ = 0;
  uint64_t d_elements_ = 0;
};

TEST_P(GemmConformanceTest, MatchesTheReference) {
  for (const GemmCase& test : kCases) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32, Dtype::kFp8E4m3})
      RunAllActivations(test, dtype);
  }
}

TEST_P(GemmConformanceTest, GatedProductsMatchTheReference) {
  for (const GemmCase& test : kGatedCases) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32, Dtype::kFp8E4m3})
      RunAllActivations(test, dtype);
  }
}

TEST_P(GemmConformanceTest, Fp8MatchesTheReferenceWithAllKindsOfScales) {
  for (const GemmCase& test : kFp8Cases) RunAllActivations(test, Dtype::kFp8E4m3);
}

// Sums of these are exact in any order; only D is rounded: bf16 keeps 8 bits.
TEST_P(GemmConformanceTest, Fp8IsDecodedExactlyAndScaledBeforeTheRounding) {
  const GemmCase test{.name = "exact", .m = 16, .n = 16, .k = 32};
  const concert_gemm_body body = BodyOf(test, Dtype::kFp8E4m3, CONCERT_ABI_ACT_NONE);
  Data data = MakeData(test, body, Dtype::kFp8E4m3);
  std::fill(data.a.begin(), data.a.end(), 0);
  std::fill(data.w.begin(), data.w.end(), 0);
  data.a[0] = 448, data.a[1] = 0x1p-9;  // the largest and the smallest number
  data.w[0] = 0.5625, data.w[1] = 0;
  data.w[body.ldw] = 0, data.w[body.ldw + 1] = -3;
  data.w[2 * body.ldw] = 1, data.w[2 * body.ldw + 1] = 448;
  data.a_scales = {3}, data.w_scales = {0x1p-20};
  Run(MakeOp(test, body, Dtype::kFp8E4m3, data));
  // 252 * 3 = 756 has 8 significant bits; 448.875 * 3 = 1346.625 is rounded to a multiple of 8.
  EXPECT_EQ(Decode(Dtype::kBf16, Read(d_buffer_, 6)),
            (std::vector<double>{756 * 0x1p-20, -9 * 0x1p-29, 1344 * 0x1p-20}));
}

TEST_P(GemmConformanceTest, RoundsOnceToNearestEven) {
  const GemmCase test{.name = "rounding", .m = 8, .n = 8, .k = 512};
  const concert_gemm_body body = BodyOf(test, Dtype::kBf16, CONCERT_ABI_ACT_NONE);
  Data data = MakeData(test, body, Dtype::kBf16);
  std::fill(data.a.begin(), data.a.end(), 1.0);
  std::fill(data.w.begin(), data.w.end(), 1.0 / 512);
  data.w[0] += 1.0 / 256;         // column 0 sums to 1 + 2^-8: a tie, and 1 is even
  data.w[body.ldw] += 3.0 / 256;  // column 1 to 1 + 3 * 2^-8: a tie, and 1 + 2^-6 is even
  Run(MakeOp(test, body, Dtype::kBf16, data));
  EXPECT_EQ(Decode(Dtype::kBf16, Read(d_buffer_, 6)), (std::vector<double>{1, 1.015625, 1}));
}

// What A's scales make small enough is not rounded before them.
TEST_P(GemmConformanceTest, ScalesOfRowsComeBeforeTheRounding) {
  const GemmCase test{.name = "large", .m = 16, .n = 16, .k = 32, .row_scales = true};
  const concert_gemm_body body = BodyOf(test, Dtype::kFp16, CONCERT_ABI_ACT_NONE);
  Data data = MakeData(test, body, Dtype::kFp16);
  std::fill(data.a.begin(), data.a.end(), 512);
  std::fill(data.w.begin(), data.w.end(), 256);  // sums are 2^22, and the largest fp16 is 65504
  std::fill(data.a_scales.begin(), data.a_scales.end(), 0x1p-10);
  data.a_scales[1] = 0x1p-12;
  Run(MakeOp(test, body, Dtype::kFp16, data));
  const std::vector<double> d = Decode(Dtype::kFp16, Read(d_buffer_, d_elements_ * 2));
  EXPECT_EQ(d[0], 4096);
  EXPECT_EQ(d[16], 1024);
  EXPECT_EQ(d[32], 4096);
}

TEST_P(GemmConformanceTest, AGroupIsOneLaunch) {
  const GemmCase cases[] = {{.name = "small", .m = 16, .n = 32, .k = 64},
                            {.name = "wide", .m = 64, .n = 200, .k = 72}};
  const concert_gemm_body bodies[] = {BodyOf(cases[0], Dtype::kBf16, 0),
                                      BodyOf(cases[1], Dtype::kBf16, 0)};
  const Data data[] = {MakeData(cases[0], bodies[0], Dtype::kBf16),
                       MakeData(cases[1], bodies[1], Dtype::kBf16)};
  const Op first = MakeOp(cases[0], bodies[0], Dtype::kBf16, data[0]);
  const uint32_t first_d = d_buffer_;
  const uint64_t first_elements = d_elements_;
  const Op second = MakeOp(cases[1], bodies[1], Dtype::kBf16, data[1]);
  const Op* ops[] = {&first, &second};
  const absl::Status status =
      gpu().Launch({.planned = {.form = policies::Form::kGroup, .lane = 2}, .ops = ops});
  if (absl::IsUnimplemented(status)) GTEST_SKIP() << status;
  ASSERT_TRUE(status.ok()) << status;
  Signal(2, 0, 1);
  WaitFor(0, 1);
  CheckD(cases[1], bodies[1], Dtype::kBf16, data[1]);
  d_buffer_ = first_d;
  d_elements_ = first_elements;
  CheckD(cases[0], bodies[0], Dtype::kBf16, data[0]);
}

// D of the first is A of the second, on one lane: no timeline in between.
TEST_P(GemmConformanceTest, DependentGemmsRunBackToBack) {
  const GemmCase test{.name = "chain", .m = 64, .n = 64, .k = 64};
  const concert_gemm_body body = BodyOf(test, Dtype::kFp32, CONCERT_ABI_ACT_NONE);
  const Data data = MakeData(test, body, Dtype::kFp32);
  const Op first = MakeOp(test, body, Dtype::kFp32, data);
  Op second = MakeOp(test, body, Dtype::kFp32, data);
  second.gemm.a = first.gemm.d;
  Launch(1, {&first});
  Launch(1, {&second});
  Signal(1, 0, 1);
  WaitFor(0, 1);
  Data chained = data;
  for (uint64_t i = 0; i < test.m; ++i) {
    for (uint64_t j = 0; j < test.n; ++j)
      chained.a[i * body.lda + j] = Expected(test, body, data, 0, i, j);
  }
  CheckD(test, body, Dtype::kFp32, chained);
}

CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(GemmConformanceTest);

}  // namespace
}  // namespace concert::daemon::conformance
