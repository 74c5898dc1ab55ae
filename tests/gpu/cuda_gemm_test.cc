// GEMMs of the cuda device against a double-precision reference: dtypes, activations, C, bias,
// strides, batches, tf32, SM budgets, and operands at element-aligned addresses only.
#include <string>

#include "tests/gpu/gpu_fixture.h"

namespace concert::tests {
namespace {

using kernels::Activation;
using kernels::GemmArgs;

constexpr uint32_t kSeed = 20261121;
constexpr double kTolerance = 1e-2;  // relative, Frobenius norm

struct GemmCase {
  std::string name;
  uint32_t m = 64, n = 64, k = 64, batch = 1;
  uint32_t pad = 0;     // extra elements per row of every matrix
  uint32_t offset = 0;  // elements between the aligned start of memory and each operand
  bool has_c = false, has_bias = false, in_place = false, allow_tf32 = false, share_w = false;
  int sm_budget = 0;
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
        bytes_(DtypeBytes(dtype)),
        a_(device, Bytes(shape.m, shape.k, shape.batch)),
        w_(device, Bytes(shape.n, shape.k, shape.share_w ? 1 : shape.batch)),
        c_(device, Bytes(shape.m, shape.n, shape.batch)),
        d_(device, Bytes(shape.m, shape.n, shape.batch)),
        bias_(device, Bytes(1, shape.n, 1)) {
    const uint64_t skip = uint64_t{shape.offset} * bytes_;
    for (HostMirror* operand : {&a_, &w_, &c_, &bias_}) operand->FillRandom(dtype, skip, random);
    if (shape.in_place) d_.FillRandom(dtype, skip, random);
    GemmArgs& g = op_.gemm;
    op_.kind = CONCERT_OP_GEMM;
    g.m = shape.m, g.n = shape.n, g.k = shape.k, g.batch = shape.batch;
    g.a = a_.address() + skip, g.w = w_.address() + skip, g.d = d_.address() + skip;
    g.c = shape.in_place ? g.d : (shape.has_c ? c_.address() + skip : 0);
    g.bias = shape.has_bias ? bias_.address() + skip : 0;
    g.lda = g.ldw = shape.k + shape.pad;
    g.ldc = g.ldd = shape.n + shape.pad;
    g.stride_a = g.lda * shape.m, g.stride_w = shape.share_w ? 0 : g.ldw * shape.n;
    g.stride_c = g.stride_d = g.ldd * shape.m;
    g.alpha = 0.75f;
    g.beta = g.c != 0 ? 0.5f : 0.0f;
    g.dtype = dtype, g.activation = activation, g.allow_tf32 = shape.allow_tf32;
  }

  const Op& op() const { return op_; }

  // Compares every element of D with the reference, and the elements between rows with what was
  // there.
  void Check() {
    const std::vector<uint8_t> before = d_.bytes();
    d_.Download();
    const GemmArgs& g = op_.gemm;
    double error = 0, norm = 0;
    uint64_t touched = 0;
    for (uint32_t member = 0; member < g.batch; ++member) {
      for (uint32_t row = 0; row < g.m; ++row) {
        for (uint32_t column = 0; column < g.ldd; ++column) {
          const uint64_t at = (shape_.offset + member * g.stride_d + row * g.ldd + column) * bytes_;
          if (column >= g.n) {
            touched += std::memcmp(&before[at], &d_.bytes()[at], bytes_) != 0;
            continue;
          }
          const double expected = Reference(member, row, column, before);
          const double got = ElementToDouble(g.dtype, &d_.bytes()[at]);
          error += (got - expected) * (got - expected);
          norm += expected * expected;
        }
      }
    }
    EXPECT_EQ(touched, 0u) << "elements between the rows of D were written";
    // Not EXPECT_LT(error, ...): a NaN, as the poison is, must fail.
    EXPECT_TRUE(std::sqrt(error) <= kTolerance * std::sqrt(norm))
        << "error " << std::sqrt(error / norm);
  }

 private:
  uint64_t Bytes(uint64_t rows, uint64_t columns, uint64_t batch) const {
    return (shape_.offset + rows * (columns + shape_.pad) * batch) * bytes_;
  }
  double At(HostMirror& mirror, uint64_t index) {
    return ElementToDouble(op_.gemm.dtype, &mirror.bytes()[(shape_.offset + index) * bytes_]);
  }
  double Reference(uint64_t member, uint64_t row, uint64_t column,
                   const std::vector<uint8_t>& d_before) {
    const GemmArgs& g = op_.gemm;
    double sum = 0;
    for (uint64_t k = 0; k < g.k; ++k) {
      sum += At(a_, member * g.stride_a + row * g.lda + k) *
             At(w_, member * g.stride_w + column * g.ldw + k);
    }
    double x = g.alpha * sum;
    const uint64_t at = member * g.stride_d + row * g.ldd + column;
    if (shape_.in_place) {
      x += g.beta * ElementToDouble(g.dtype, &d_before[(shape_.offset + at) * bytes_]);
    } else if (shape_.has_c) {
      x += g.beta * At(c_, at);
    }
    if (shape_.has_bias) x += At(bias_, column);
    return Activate(x, g.activation);
  }

  const GemmCase shape_;
  const uint64_t bytes_;
  HostMirror a_, w_, c_, d_, bias_;
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

TEST_F(GpuTest, GemmMatchesReference) {
  std::mt19937 random(kSeed);
  for (const GemmCase& shape : Cases()) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32}) {
      for (const Activation activation :
           {Activation::kNone, Activation::kRelu, Activation::kGelu, Activation::kSilu}) {
        SCOPED_TRACE(shape.name + ", dtype " + std::to_string(static_cast<int>(dtype)) +
                     ", activation " + std::to_string(static_cast<int>(activation)) + ", seed " +
                     std::to_string(kSeed));
        GemmRun run(device(), shape, dtype, activation, random);
        const Op* ops[] = {&run.op()};
        const policies::Lane lane = random() % policies::kCollectiveLane;
        ASSERT_OK(device().Launch(lane, {.ops = ops, .sm_budget = shape.sm_budget}));
        Finish(lane);
        run.Check();
        if (HasFatalFailure()) return;
      }
    }
  }
}

// More problems than the cache holds, so that entries are evicted and planned again.
TEST_F(GpuTest, GemmSurvivesCacheEviction) {
  std::mt19937 random(kSeed);
  GemmRun first(device(), {.name = "first", .m = 3, .n = 40, .k = 24, .has_bias = true},
                Dtype::kBf16, Activation::kRelu, random);
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
