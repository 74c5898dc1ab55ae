// GEMMs of the cuda device against a double-precision reference: dtypes, activations, C, bias,
// strides, batches, scales, tf32, SM budgets, and operands at element-aligned addresses only.
#include <string>

#include "tests/gpu/gpu_fixture.h"

namespace concert::tests {
namespace {

using kernels::Activation;
using kernels::GemmArgs;

constexpr uint32_t kSeed = 20261121;
// Relative, Frobenius norm. fp8: tensor cores add its products in less than fp32.
constexpr double kTolerance = 1e-2, kFp8Tolerance = 5e-2;

enum class Scales { kNone, kPerTensor, kPerRow };

struct GemmCase {
  std::string name;
  uint32_t m = 64, n = 64, k = 64, batch = 1;
  uint32_t pad = 0;     // extra elements per row of every matrix
  uint32_t offset = 0;  // elements between the aligned start of memory and each operand
  bool has_c = false, has_bias = false, in_place = false, allow_tf32 = false, share_w = false;
  int sm_budget = 0;
  // fp8 only.
  Scales a_scales = Scales::kPerTensor, w_scales = Scales::kPerTensor;
  uint32_t scales_offset = 0;  // more elements before the scales
  Dtype fp8_d = Dtype::kBf16;
};

double Activate(double x, Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return x > 0 ? x : 0;
    case Activation::kGelu:
      return 0.5 * x * (1 + std::tanh(0.7978845608 * (x + 0.044715 * x * x * x)));
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

class GemmRun {
 public:
  GemmRun(CudaDevice& device, const GemmCase& shape, Dtype dtype, Activation activation,
          std::mt19937& random)
      : shape_(shape),
        d_dtype_(dtype == Dtype::kFp8E4m3 ? shape.fp8_d : dtype),
        a_(device, Bytes(dtype, shape.m, shape.k, shape.batch)),
        w_(device, Bytes(dtype, shape.n, shape.k, shape.share_w ? 1 : shape.batch)),
        c_(device, Bytes(d_dtype_, shape.m, shape.n, shape.batch)),
        d_(device, Bytes(d_dtype_, shape.m, shape.n, shape.batch)),
        bias_(device, Bytes(d_dtype_, 1, shape.n, 1)),
        a_scales_(device, Bytes(Dtype::kFp32, 1, shape.m + shape.scales_offset, 1)),
        w_scales_(device, Bytes(Dtype::kFp32, 1, shape.n + shape.scales_offset, 1)) {
    const uint64_t skip = Skip(dtype), d_skip = Skip(d_dtype_);
    for (HostMirror* operand : {&a_, &w_}) operand->FillRandom(dtype, skip, random);
    for (HostMirror* operand : {&c_, &bias_}) operand->FillRandom(d_dtype_, d_skip, random);
    if (shape.in_place) d_.FillRandom(d_dtype_, d_skip, random);
    GemmArgs& g = op_.gemm;
    op_.kind = CONCERT_OP_GEMM;
    g.m = shape.m, g.n = shape.n, g.k = shape.k, g.batch = shape.batch;
    g.a = a_.address() + skip, g.w = w_.address() + skip, g.d = d_.address() + d_skip;
    g.c = shape.in_place ? g.d : (shape.has_c ? c_.address() + d_skip : 0);
    g.bias = shape.has_bias ? bias_.address() + d_skip : 0;
    g.lda = g.ldw = shape.k + shape.pad;
    g.ldc = g.ldd = shape.n + shape.pad;
    g.stride_a = g.lda * shape.m, g.stride_w = shape.share_w ? 0 : g.ldw * shape.n;
    g.stride_c = g.stride_d = g.ldd * shape.m;
    g.alpha = 0.75f;
    g.beta = g.c != 0 ? 0.5f : 0.0f;
    g.dtype = dtype, g.d_dtype = d_dtype_;
    g.activation = activation, g.allow_tf32 = shape.allow_tf32;
    if (dtype != Dtype::kFp8E4m3) return;
    for (HostMirror* scales : {&a_scales_, &w_scales_})
      scales->FillRandom(Dtype::kFp32, Skip(Dtype::kFp32), random);
    const uint64_t scales_skip = (shape.offset + shape.scales_offset) * sizeof(float);
    if (shape.a_scales != Scales::kNone) g.a_scales = a_scales_.address() + scales_skip;
    if (shape.w_scales != Scales::kNone) g.w_scales = w_scales_.address() + scales_skip;
    g.a_scales_per_row = shape.a_scales == Scales::kPerRow;
    g.w_scales_per_row = shape.w_scales == Scales::kPerRow;
  }

  const Op& op() const { return op_; }

  // Compares every element of D with the reference, and the elements between rows with what was
  // there.
  void Check() {
    const std::vector<uint8_t> before = d_.bytes();
    d_.Download();
    const GemmArgs& g = op_.gemm;
    double error = 0, norm = 0;
    const uint64_t bytes = DtypeBytes(d_dtype_);
    uint64_t touched = 0;
    for (uint32_t member = 0; member < g.batch; ++member) {
      for (uint32_t row = 0; row < g.m; ++row) {
        for (uint32_t column = 0; column < g.ldd; ++column) {
          const uint64_t at = (shape_.offset + member * g.stride_d + row * g.ldd + column) * bytes;
          if (column >= g.n) {
            touched += std::memcmp(&before[at], &d_.bytes()[at], bytes) != 0;
            continue;
          }
          const double expected = Reference(member, row, column, before);
          const double got = ElementToDouble(d_dtype_, &d_.bytes()[at]);
          error += (got - expected) * (got - expected);
          norm += expected * expected;
        }
      }
    }
    EXPECT_EQ(touched, 0u) << "elements between the rows of D were written";
    // Not EXPECT_LT(error, ...): a NaN, as the poison is, must fail.
    const double tolerance = g.dtype == Dtype::kFp8E4m3 ? kFp8Tolerance : kTolerance;
    EXPECT_TRUE(std::sqrt(error) <= tolerance * std::sqrt(norm))
        << "error " << std::sqrt(error / norm);
  }

 private:
  uint64_t Skip(Dtype dtype) const { return uint64_t{shape_.offset} * DtypeBytes(dtype); }
  uint64_t Bytes(Dtype dtype, uint64_t rows, uint64_t columns, uint64_t batch) const {
    return (shape_.offset + rows * (columns + shape_.pad) * batch) * DtypeBytes(dtype);
  }
  double At(Dtype dtype, HostMirror& mirror, uint64_t index) const {
    return ElementToDouble(dtype, &mirror.bytes()[(shape_.offset + index) * DtypeBytes(dtype)]);
  }
  double ScaleOf(HostMirror& mirror, Address address, bool per_row, uint64_t row) const {
    if (address == 0) return 1;
    return At(Dtype::kFp32, mirror, shape_.scales_offset + (per_row ? row : 0));
  }
  double Reference(uint64_t member, uint64_t row, uint64_t column,
                   const std::vector<uint8_t>& d_before) {
    const GemmArgs& g = op_.gemm;
    double sum = 0;
    for (uint64_t k = 0; k < g.k; ++k) {
      sum += At(g.dtype, a_, member * g.stride_a + row * g.lda + k) *
             At(g.dtype, w_, member * g.stride_w + column * g.ldw + k);
    }
    double x = g.alpha * sum * ScaleOf(a_scales_, g.a_scales, g.a_scales_per_row, row) *
               ScaleOf(w_scales_, g.w_scales, g.w_scales_per_row, column);
    const uint64_t at = member * g.stride_d + row * g.ldd + column;
    if (shape_.in_place) {
      const uint64_t offset = (shape_.offset + at) * DtypeBytes(d_dtype_);
      x += g.beta * ElementToDouble(d_dtype_, &d_before[offset]);
    } else if (shape_.has_c) {
      x += g.beta * At(d_dtype_, c_, at);
    }
    if (shape_.has_bias) x += At(d_dtype_, bias_, column);
    return Activate(x, g.activation);
  }

  const GemmCase shape_;
  const Dtype d_dtype_;
  HostMirror a_, w_, c_, d_, bias_, a_scales_, w_scales_;
  Op op_;
};

std::vector<GemmCase> Cases() {
  return {
      {.name = "square"},
      {.name = "one row", .m = 1, .n = 256, .k = 128},
      {.name = "odd sizes", .m = 33, .n = 71, .k = 45},
      {.name = "one by one", .m = 1, .n = 1, .k = 1},
      {.name = "long k", .m = 16, .n = 32, .k = 4096},
      {.name = "padded rows", .m = 40, .n = 96, .k = 72, .pad = 8},
      {.name = "oddly padded rows", .m = 40, .n = 96, .k = 72, .pad = 3},
      {.name = "unaligned", .m = 48, .n = 80, .k = 64, .offset = 1},
      {.name = "unaligned with bias and C",
       .m = 48,
       .n = 80,
       .k = 64,
       .offset = 3,
       .has_c = true,
       .has_bias = true},
      {.name = "bias", .m = 64, .n = 128, .k = 64, .has_bias = true},
      {.name = "C and bias", .m = 32, .n = 136, .k = 64, .pad = 8, .has_c = true, .has_bias = true},
      {.name = "C is D", .m = 32, .n = 64, .k = 64, .has_bias = true, .in_place = true},
      {.name = "batch", .m = 24, .n = 64, .k = 32, .batch = 5, .has_bias = true},
      {.name = "batch of one W",
       .m = 24,
       .n = 64,
       .k = 32,
       .batch = 3,
       .has_c = true,
       .share_w = true},
      {.name = "odd batch",
       .m = 7,
       .n = 9,
       .k = 11,
       .batch = 4,
       .pad = 1,
       .offset = 1,
       .has_bias = true},
      {.name = "tf32", .m = 64, .n = 64, .k = 256, .allow_tf32 = true},
      {.name = "few SMs", .m = 256, .n = 256, .k = 64, .sm_budget = 16},
  };
}

// What only fp8 has. Sizes are multiples of 16, as cuBLASLt asks for, but where the case is about
// something else.
std::vector<GemmCase> Fp8Cases() {
  constexpr Scales kNone = Scales::kNone, kPerRow = Scales::kPerRow;
  return {
      {.name = "no scales", .n = 128, .a_scales = kNone, .w_scales = kNone},
      {.name = "one scale", .n = 128, .a_scales = kNone},
      {.name = "per tensor, long k", .m = 64, .n = 128, .k = 2048},
      {.name = "per tensor, fp16 D", .n = 128, .k = 256, .fp8_d = Dtype::kFp16},
      {.name = "per tensor, few rows", .m = 3, .n = 256, .k = 512, .has_bias = true},
      {.name = "per tensor, batch", .n = 128, .k = 128, .batch = 3},
      {.name = "per tensor, few SMs", .m = 256, .n = 256, .k = 256, .sm_budget = 16},
      {.name = "per row", .m = 128, .n = 256, .k = 512, .a_scales = kPerRow, .w_scales = kPerRow},
      {.name = "per row, C and bias, fp16 D",
       .m = 48,
       .n = 272,
       .k = 160,
       .has_c = true,
       .has_bias = true,
       .a_scales = kPerRow,
       .w_scales = kPerRow,
       .fp8_d = Dtype::kFp16},
      {.name = "per row, one row",
       .m = 1,
       .n = 256,
       .k = 128,
       .a_scales = kPerRow,
       .w_scales = kPerRow},
      {.name = "per row of A only", .n = 128, .a_scales = kPerRow},
      {.name = "per row of W only", .n = 128, .a_scales = kNone, .w_scales = kPerRow},
      {.name = "per row, batch",
       .m = 16,
       .n = 48,
       .k = 64,
       .batch = 3,
       .a_scales = kPerRow,
       .w_scales = kPerRow},
      {.name = "per row, unaligned tails",
       .m = 65,
       .n = 131,
       .k = 77,
       .pad = 3,
       .offset = 3,
       .has_c = true,
       .has_bias = true,
       .a_scales = kPerRow,
       .w_scales = kPerRow,
       .fp8_d = Dtype::kFp16},
      {.name = "per row, 16 elements from the start",
       .m = 33,
       .n = 64,
       .k = 64,
       .offset = 16,
       .has_bias = true,
       .a_scales = kPerRow,
       .w_scales = kPerRow},
      {.name = "per row, unaligned scales only",
       .m = 33,
       .n = 64,
       .k = 64,
       .a_scales = kPerRow,
       .w_scales = kPerRow,
       .scales_offset = 1},
  };
}

class GpuGemmTest : public GpuTest {
 protected:
  void RunAllActivations(const GemmCase& shape, Dtype dtype) {
    for (const Activation activation :
         {Activation::kNone, Activation::kRelu, Activation::kGelu, Activation::kSilu}) {
      SCOPED_TRACE(shape.name + ", dtype " + std::to_string(static_cast<int>(dtype)) +
                   ", activation " + std::to_string(static_cast<int>(activation)) + ", seed " +
                   std::to_string(kSeed));
      GemmRun run(device(), shape, dtype, activation, random_);
      const Op* ops[] = {&run.op()};
      const policies::Lane lane = random_() % policies::kCollectiveLane;
      ASSERT_OK(device().Launch(lane, {.ops = ops, .sm_budget = shape.sm_budget}));
      Finish(lane);
      run.Check();
      if (HasFatalFailure()) return;
    }
  }

  std::mt19937 random_{kSeed};
};

TEST_F(GpuGemmTest, MatchesReference) {
  for (const GemmCase& shape : Cases()) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32, Dtype::kFp8E4m3})
      RunAllActivations(shape, dtype);
  }
}

TEST_F(GpuGemmTest, Fp8MatchesReferenceWithAllKindsOfScales) {
  for (const GemmCase& shape : Fp8Cases()) RunAllActivations(shape, Dtype::kFp8E4m3);
}

// One shape, so that the second GEMM finds the description that the first one left behind.
TEST_F(GpuGemmTest, Fp8ReadsTheScalesOfItsOwnOp) {
  const GemmCase shape = {.name = "shared plan", .n = 128, .k = 128, .has_bias = true};
  GemmRun first(device(), shape, Dtype::kFp8E4m3, Activation::kNone, random_);
  GemmRun second(device(), shape, Dtype::kFp8E4m3, Activation::kNone, random_);
  const Op* ops[] = {&first.op(), &second.op()};
  for (const Op*& op : ops) ASSERT_OK(device().Launch(0, {.ops = {&op, 1}}));
  Finish(0);
  first.Check();
  second.Check();
}

// More problems than the cache holds, so that entries are evicted and planned again.
TEST_F(GpuGemmTest, SurvivesCacheEviction) {
  GemmRun first(device(), {.name = "first", .m = 3, .n = 40, .k = 24, .has_bias = true},
                Dtype::kBf16, Activation::kRelu, random_);
  HostMirror scratch(device(), 1 << 20, 0);
  for (uint32_t i = 0; i < 1200; ++i) {
    Op op = first.op();
    op.gemm.m = 1 + i % 64, op.gemm.n = 8 + 8 * (i / 64);
    op.gemm.a = op.gemm.w = scratch.address(), op.gemm.d = scratch.address() + (1 << 19);
    op.gemm.bias = scratch.address();
    op.gemm.ldd = op.gemm.n;
    const Op* ops[] = {&op};
    ASSERT_OK(device().Launch(0, {.ops = ops}));
  }
  const Op* ops[] = {&first.op()};
  ASSERT_OK(device().Launch(0, {.ops = ops}));
  Finish(0);
  first.Check();
}

}  // namespace
}  // namespace concert::tests
