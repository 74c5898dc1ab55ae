// One GEMM on the device and its reference in double precision on the host.
#ifndef CONCERT_TESTS_GPU_GEMM_RUN_H_
#define CONCERT_TESTS_GPU_GEMM_RUN_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/gemm/gemm_op.h"
#include "kernels/group/group_operand.h"
#include "kernels/skinny/skinny_gemm.h"
#include "tests/gpu/gpu_fixture.h"

namespace concert::test {

using kernels::Activation;
using kernels::GemmArgs;

// Relative, Frobenius norm. fp8: tensor cores add its products in less than fp32.
inline constexpr double kTolerance = 1e-2, kFp8Tolerance = 5e-2;
// Of a single element: how many times the tolerance its error may be, relative to the mean square.
inline constexpr double kElementSlack = 5;

enum class Scales { kNone, kPerTensor, kPerRow };

struct GemmCase {
  std::string name;
  uint32_t m = 64, n = 64, k = 64, batch = 1;
  uint32_t pad = 0;           // extra elements per row of every matrix
  uint32_t offset = 0;        // elements between the aligned start of memory and each operand
  bool aligned_rows = false;  // rows are as long as it takes to begin at multiples of 16 bytes
  // Whatever aligned_rows says: rows of A, of W follow each other without a gap; more elements
  // before A, before W.
  bool tight_a = false, tight_w = false;
  uint32_t a_offset = 0, w_offset = 0;
  bool has_c = false, has_bias = false, in_place = false, allow_tf32 = false, share_w = false;
  bool residual = false;                    // C is added behind the activation, where there is one
  bool row_scales = false;                  // A has one per row, if its dtype is not fp8
  bool gated = false, interleaved = false;  // D is half as wide; for activations that gate
  bool has_gain = false;  // A's rows are RMS-normalised first, which only skinny() says
  float alpha = 0.75f;
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
        layout_(Place(dtype)),
        memory_(device, layout_.end) {
    GemmArgs& g = op_.gemm;
    op_.kind = CONCERT_OP_GEMM;
    g.m = shape.m, g.n = shape.n, g.k = shape.k, g.batch = shape.batch;
    g.lda = shape.tight_a ? shape.k : RowStride(dtype, shape.k);
    g.ldw = shape.tight_w ? shape.k : RowStride(dtype, shape.k);
    g.gated = shape.gated, g.interleaved = shape.interleaved;
    g.ldc = g.ldd = RowStride(d_dtype_, g.d_columns());
    g.stride_a = g.lda * shape.m, g.stride_w = shape.share_w ? 0 : g.ldw * shape.n;
    g.stride_c = g.stride_d = g.ldd * shape.m;
    g.a = AddressAt(layout_.a), g.w = AddressAt(layout_.w), g.d = AddressAt(layout_.d);
    if (shape.has_c) g.c = AddressAt(layout_.c);
    if (shape.in_place) g.c = g.d;
    if (shape.has_bias) g.bias = AddressAt(layout_.bias);
    g.alpha = shape.alpha;
    g.beta = g.c != 0 ? 0.5f : 0.0f;
    g.dtype = dtype, g.d_dtype = d_dtype_;
    g.activation = activation, g.allow_tf32 = shape.allow_tf32;
    g.residual = shape.residual && activation != Activation::kNone;
    if (dtype == Dtype::kFp8E4m3) UseScales();
    if (dtype != Dtype::kFp8E4m3 && shape.row_scales) {
      g.a_scales = AddressAt(layout_.a_scales);
      g.a_scales_per_row = true;
    }
    SetWork();
    FillInputs(random);
    before_ = memory_.bytes();
  }

  const Op& op() const { return op_; }
  // REQUIRES: bf16.
  kernels::SkinnyGemm skinny() const {
    if (!shape_.has_gain) return {op_.gemm, 0, 0};
    return {op_.gemm, AddressAt(layout_.gain), kEpsilon};
  }
  // Makes D what it was before the first launch, so that the same op can be checked again.
  void Poison() {
    memory_.bytes() = before_;
    memory_.Upload();
  }

  // Copies D back as it is now. Check does so itself.
  void Fetch() { memory_.Download(); }

  // What was copied back last.
  const std::vector<uint8_t>& bytes() { return memory_.bytes(); }

  void Check() {
    Fetch();
    CheckFetched();
  }

  // Compares every element of D with the reference, and all memory around them, gaps between rows
  // and the inputs included, with what was there.
  void CheckFetched() {
    if (expected_.empty()) ComputeExpected();
    const GemmArgs& g = op_.gemm;
    const uint64_t bytes = DtypeBytes(d_dtype_);
    std::vector<uint8_t> around = memory_.bytes();
    auto expected_at = expected_.begin();
    double error = 0, largest = 0;
    for (uint32_t member = 0; member < g.batch; ++member) {
      for (uint32_t row = 0; row < g.m; ++row) {
        for (uint32_t column = 0; column < g.d_columns(); ++column) {
          const uint64_t at = layout_.d + (member * g.stride_d + row * g.ldd + column) * bytes;
          const double expected = *expected_at++;
          const double off = std::fabs(ElementToDouble(d_dtype_, &around[at]) - expected);
          error += off * off;
          if (!(off <= largest)) largest = off;  // a NaN, too
          std::memcpy(&around[at], &before_[at], bytes);
        }
      }
    }
    const auto differs = std::mismatch(around.begin(), around.end(), before_.begin()).first;
    EXPECT_TRUE(differs == around.end())
        << Describe() << ": memory around the elements of D was written, first "
        << (differs - around.begin()) - static_cast<ptrdiff_t>(layout_.d)
        << " bytes after its begin; rows are " << g.ldd * bytes << " bytes";
    // Not EXPECT_LT(error, ...): a NaN, as the poison is, must fail.
    const double tolerance = g.dtype == Dtype::kFp8E4m3 ? kFp8Tolerance : kTolerance;
    const double mean = std::sqrt(norm_ / static_cast<double>(expected_.size()));
    EXPECT_TRUE(std::sqrt(error) <= tolerance * std::sqrt(norm_))
        << Describe() << ": error " << std::sqrt(error / norm_);
    EXPECT_TRUE(largest <= kElementSlack * tolerance * mean)
        << Describe() << ": an element is off by " << largest << ", their mean is " << mean;
  }

 private:
  // Where the operands begin in memory_, bytes. What lies between them is poison.
  struct Layout {
    uint64_t a, w, c, d, bias, a_scales, w_scales, gain, end;
  };
  static constexpr uint64_t kApart = 256;
  static constexpr float kEpsilon = 0.125f;  // of norms; large enough to be seen

  Layout Place(Dtype dtype) const {
    Layout layout;
    uint64_t end = kApart;
    const auto place = [&](uint64_t& begin, Dtype of, uint64_t skip, uint64_t elements) {
      begin = end + (shape_.offset + skip) * DtypeBytes(of);
      end = (begin + elements * DtypeBytes(of) + 2 * kApart - 1) / kApart * kApart;
    };
    const uint64_t batch = shape_.batch, w_batch = shape_.share_w ? 1 : batch;
    const uint64_t d_elements = shape_.m * RowStride(d_dtype_, shape_.n) * batch;
    place(layout.a, dtype, shape_.a_offset, shape_.m * RowStride(dtype, shape_.k) * batch);
    place(layout.w, dtype, shape_.w_offset, shape_.n * RowStride(dtype, shape_.k) * w_batch);
    place(layout.c, d_dtype_, 0, shape_.has_c ? d_elements : 0);
    place(layout.d, d_dtype_, 0, d_elements);
    place(layout.bias, d_dtype_, 0, shape_.n);
    place(layout.a_scales, Dtype::kFp32, shape_.scales_offset, shape_.m);
    place(layout.w_scales, Dtype::kFp32, shape_.scales_offset, shape_.n);
    place(layout.gain, dtype, 0, shape_.has_gain ? shape_.k : 0);
    layout.end = end;
    return layout;
  }
  uint64_t RowStride(Dtype dtype, uint64_t columns) const {
    const uint64_t unit = shape_.aligned_rows ? kernels::kGroupAlignment / DtypeBytes(dtype) : 1;
    return (columns + shape_.pad + unit - 1) / unit * unit;
  }
  Address AddressAt(uint64_t offset) const { return memory_.address() + offset; }

  void UseScales() {
    GemmArgs& g = op_.gemm;
    if (shape_.a_scales != Scales::kNone) g.a_scales = AddressAt(layout_.a_scales);
    if (shape_.w_scales != Scales::kNone) g.w_scales = AddressAt(layout_.w_scales);
    g.a_scales_per_row = shape_.a_scales == Scales::kPerRow;
    g.w_scales_per_row = shape_.w_scales == Scales::kPerRow;
  }

  // As admission does.
  void SetWork() {
    const GemmArgs& g = op_.gemm;
    op_.work = {.runs_on = policies::RunsOn::kSms,
                .dtype = g.dtype,
                .allow_tf32 = g.allow_tf32,
                .m = g.m,
                .n = g.n,
                .k = g.k,
                .batch = g.batch,
                .flops = uint64_t{2} * g.m * g.n * g.k * g.batch};
    const std::optional<uint32_t> repack_bytes = kernels::GroupRepackBytes(g);
    if (repack_bytes.has_value()) op_.work.carrier = policies::Carrier::kGroup;
    op_.work.repack_bytes = repack_bytes.value_or(0);
  }

  void FillInputs(std::mt19937& random) {
    const GemmArgs& g = op_.gemm;
    const uint32_t w_batch = shape_.share_w ? 1 : g.batch;
    Fill(layout_.a, g.dtype, g.m * g.batch, g.k, g.lda, random);
    Fill(layout_.w, g.dtype, g.n * w_batch, g.k, g.ldw, random);
    if (shape_.has_c) Fill(layout_.c, d_dtype_, g.m * g.batch, g.n, g.ldc, random);
    if (shape_.in_place) Fill(layout_.d, d_dtype_, g.m * g.batch, g.d_columns(), g.ldd, random);
    Fill(layout_.bias, d_dtype_, 1, g.n, g.n, random);
    Fill(layout_.a_scales, Dtype::kFp32, 1, g.m, g.m, random);
    Fill(layout_.w_scales, Dtype::kFp32, 1, g.n, g.n, random);
    if (shape_.has_gain) Fill(layout_.gain, g.dtype, 1, g.k, g.k, random);
    memory_.Upload();
  }
  void Fill(uint64_t begin, Dtype dtype, uint64_t rows, uint64_t columns, uint64_t row_stride,
            std::mt19937& random) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (uint64_t row = 0; row < rows; ++row) {
      for (uint64_t column = 0; column < columns; ++column) {
        const uint64_t at = begin + (row * row_stride + column) * DtypeBytes(dtype);
        ElementFromFloat(dtype, uniform(random), &memory_.bytes()[at]);
      }
    }
  }

  // Elements of an operand as they were before the first launch.
  std::vector<double> Decode(uint64_t begin, Dtype dtype, uint64_t count) const {
    std::vector<double> elements(count);
    for (uint64_t i = 0; i < count; ++i) {
      elements[i] = ElementToDouble(dtype, &before_[begin + i * DtypeBytes(dtype)]);
    }
    return elements;
  }
  void ComputeExpected() {
    const GemmArgs& g = op_.gemm;
    const uint64_t w_batch = shape_.share_w ? 1 : g.batch;
    std::vector<double> a = Decode(layout_.a, g.dtype, g.lda * g.m * g.batch);
    if (shape_.has_gain) Normalise(a);
    const std::vector<double> w = Decode(layout_.w, g.dtype, g.ldw * g.n * w_batch);
    expected_.reserve(uint64_t{g.m} * g.d_columns() * g.batch);
    for (uint32_t member = 0; member < g.batch; ++member) {
      for (uint32_t row = 0; row < g.m; ++row) {
        const double* const a_row = &a[member * g.stride_a + row * g.lda];
        const auto sum = [&](uint64_t column) {
          return SumOf(a_row, &w[member * g.stride_w + column * g.ldw], row, column);
        };
        for (uint32_t column = 0; column < g.d_columns(); ++column) {
          const Sum x = sum(g.interleaved ? 2 * column : column);
          if (!g.gated) {
            Expect(Finish(x.value, member, row, column), x.square);
            continue;
          }
          const uint64_t up_at = g.interleaved ? 2 * column + 1 : column + g.n / 2;
          const Sum up = sum(up_at);
          Expect(Activate(x.value + BiasOf(g.interleaved ? 2 * column : column), g.activation) *
                     (up.value + BiasOf(up_at)),
                 x.square * up.square);
        }
      }
    }
  }
  // A's rows, as an rms_norm does.
  void Normalise(std::vector<double>& a) const {
    const GemmArgs& g = op_.gemm;
    const std::vector<double> gain = Decode(layout_.gain, g.dtype, g.k);
    for (uint32_t row = 0; row < g.m; ++row) {
      double* const x = &a[row * g.lda];
      double squares = 0;
      for (uint32_t i = 0; i < g.k; ++i) squares += x[i] * x[i];
      const double scale = 1 / std::sqrt(squares / g.k + kEpsilon);
      for (uint32_t i = 0; i < g.k; ++i) x[i] *= scale * gain[i];
    }
  }
  void Expect(double expected, double square) {
    expected_.push_back(expected);
    norm_ += std::max(expected * expected, square);
  }
  // Of products, scaled; and the sum of the squares of what is added up.
  struct Sum {
    double value, square;
  };
  Sum SumOf(const double* a_row, const double* w_row, uint64_t row, uint64_t column) const {
    double sum = 0, squares = 0;
    for (uint32_t k = 0; k < op_.gemm.k; ++k) {
      const double product = a_row[k] * w_row[k];
      sum += product;
      squares += product * product;
    }
    const double scale = ScaleOf(row, column);
    return {scale * sum, scale * scale * squares};
  }
  double BiasOf(uint64_t column) const {
    if (op_.gemm.bias == 0) return 0;
    return ElementToDouble(d_dtype_, &before_[layout_.bias + column * DtypeBytes(d_dtype_)]);
  }
  // The factor of the sum of products.
  double ScaleOf(uint64_t row, uint64_t column) const {
    const GemmArgs& g = op_.gemm;
    const auto scale = [&](uint64_t begin, Address address, uint64_t index) {
      if (address == 0) return 1.0;
      return ElementToDouble(Dtype::kFp32, &before_[begin + index * sizeof(float)]);
    };
    return g.alpha * scale(layout_.a_scales, g.a_scales, g.a_scales_per_row ? row : 0) *
           scale(layout_.w_scales, g.w_scales, g.w_scales_per_row ? column : 0);
  }
  double Finish(double x, uint64_t member, uint64_t row, uint64_t column) const {
    const GemmArgs& g = op_.gemm;
    const uint64_t bytes = DtypeBytes(d_dtype_);
    double addend = 0;
    if (g.c != 0) {
      const uint64_t at = (member * g.stride_c + row * g.ldc + column) * bytes;
      addend = g.beta * ElementToDouble(d_dtype_, &before_[g.c - memory_.address() + at]);
    }
    x += BiasOf(column);
    return g.residual ? Activate(x, g.activation) + addend : Activate(x + addend, g.activation);
  }
  std::string Describe() const {
    const GemmArgs& g = op_.gemm;
    return std::to_string(g.m) + "x" + std::to_string(g.n) + "x" + std::to_string(g.k);
  }

  const GemmCase shape_;
  const Dtype d_dtype_;
  const Layout layout_;
  HostMirror memory_;
  std::vector<uint8_t> before_;   // all of memory_ before the first launch
  std::vector<double> expected_;  // D's elements, rows and members contiguous
  // Sum of the squares of D's elements; of those whose products cancel out, of what they would be
  // if they did not, because errors do not cancel.
  double norm_ = 0;
  Op op_;
};

}  // namespace concert::test

#endif  // CONCERT_TESTS_GPU_GEMM_RUN_H_
