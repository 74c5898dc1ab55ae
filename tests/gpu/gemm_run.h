// One GEMM on the device and its reference in double precision on the host.
#ifndef CONCERT_TESTS_GPU_GEMM_RUN_H_
#define CONCERT_TESTS_GPU_GEMM_RUN_H_

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/gpu/gpu_fixture.h"

namespace concert::tests {

using kernels::Activation;
using kernels::GemmArgs;

// Relative, Frobenius norm. fp8: tensor cores add its products in less than fp32.
inline constexpr double kTolerance = 1e-2, kFp8Tolerance = 5e-2;

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

inline double Activate(double x, Activation activation) {
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
    before_ = d_.bytes();
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
    if (dtype == Dtype::kFp8E4m3) UseScales(random);
  }

  const Op& op() const { return op_; }

  // Makes D what it was before the first launch, so that the same op can be checked again.
  void Poison() {
    d_.bytes() = before_;
    d_.Upload();
  }

  // Compares every element of D with the reference, and the elements between rows with what was
  // there.
  void Check() {
    d_.Download();
    const GemmArgs& g = op_.gemm;
    if (expected_.empty()) ComputeExpected();
    auto expected_at = expected_.begin();
    double error = 0, norm = 0;
    const uint64_t bytes = DtypeBytes(d_dtype_);
    uint64_t touched = 0;
    for (uint32_t member = 0; member < g.batch; ++member) {
      for (uint32_t row = 0; row < g.m; ++row) {
        for (uint32_t column = 0; column < g.ldd; ++column) {
          const uint64_t at = (shape_.offset + member * g.stride_d + row * g.ldd + column) * bytes;
          if (column >= g.n) {
            touched += std::memcmp(&before_[at], &d_.bytes()[at], bytes) != 0;
            continue;
          }
          const double expected = *expected_at++;
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
  void UseScales(std::mt19937& random) {
    for (HostMirror* scales : {&a_scales_, &w_scales_})
      scales->FillRandom(Dtype::kFp32, Skip(Dtype::kFp32), random);
    GemmArgs& g = op_.gemm;
    const uint64_t skip = (shape_.offset + shape_.scales_offset) * sizeof(float);
    if (shape_.a_scales != Scales::kNone) g.a_scales = a_scales_.address() + skip;
    if (shape_.w_scales != Scales::kNone) g.w_scales = w_scales_.address() + skip;
    g.a_scales_per_row = shape_.a_scales == Scales::kPerRow;
    g.w_scales_per_row = shape_.w_scales == Scales::kPerRow;
  }
  uint64_t Skip(Dtype dtype) const { return uint64_t{shape_.offset} * DtypeBytes(dtype); }
  uint64_t Bytes(Dtype dtype, uint64_t rows, uint64_t columns, uint64_t batch) const {
    return (shape_.offset + rows * (columns + shape_.pad) * batch) * DtypeBytes(dtype);
  }
  double At(Dtype dtype, const std::vector<uint8_t>& bytes, uint64_t index) const {
    return ElementToDouble(dtype, &bytes[(shape_.offset + index) * DtypeBytes(dtype)]);
  }
  double ScaleOf(HostMirror& mirror, Address address, bool per_row, uint64_t row) const {
    if (address == 0) return 1;
    return At(Dtype::kFp32, mirror.bytes(), shape_.scales_offset + (per_row ? row : 0));
  }
  void ComputeExpected() {
    const GemmArgs& g = op_.gemm;
    for (uint32_t member = 0; member < g.batch; ++member) {
      for (uint32_t row = 0; row < g.m; ++row) {
        for (uint32_t column = 0; column < g.n; ++column) {
          expected_.push_back(Reference(member, row, column));
        }
      }
    }
  }
  double Reference(uint64_t member, uint64_t row, uint64_t column) {
    const GemmArgs& g = op_.gemm;
    double sum = 0;
    for (uint64_t k = 0; k < g.k; ++k) {
      sum += At(g.dtype, a_.bytes(), member * g.stride_a + row * g.lda + k) *
             At(g.dtype, w_.bytes(), member * g.stride_w + column * g.ldw + k);
    }
    double x = g.alpha * sum * ScaleOf(a_scales_, g.a_scales, g.a_scales_per_row, row) *
               ScaleOf(w_scales_, g.w_scales, g.w_scales_per_row, column);
    const uint64_t at = member * g.stride_d + row * g.ldd + column;
    if (shape_.in_place) {
      x += g.beta * At(d_dtype_, before_, at);
    } else if (shape_.has_c) {
      x += g.beta * At(d_dtype_, c_.bytes(), at);
    }
    if (shape_.has_bias) x += At(d_dtype_, bias_.bytes(), column);
    return Activate(x, g.activation);
  }

  const GemmCase shape_;
  const Dtype d_dtype_;
  HostMirror a_, w_, c_, d_, bias_, a_scales_, w_scales_;
  std::vector<uint8_t> before_;   // D's bytes
  std::vector<double> expected_;  // D's elements, rows and members contiguous
  Op op_;
};

}  // namespace concert::tests

#endif  // CONCERT_TESTS_GPU_GEMM_RUN_H_
