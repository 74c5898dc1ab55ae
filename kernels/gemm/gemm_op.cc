#include "kernels/gemm/gemm_op.h"

#include <optional>

#include "kernels/validate.h"

namespace concert::kernels {
namespace {

Failure CheckScalars(const concert_descriptor& descriptor, const concert_gemm_body& body) {
  CONCERT_RETURN_IF_FAILED(CheckReserved(
      descriptor,
      HeaderReservedIsZero(descriptor) && body.reserved0 == 0 &&
          (body.reserved1[0] | body.reserved1[1] | body.c.reserved | body.bias.reserved) == 0));
  CONCERT_RETURN_IF_FAILED(CheckDtype(body.dtype));
  if (body.activation > CONCERT_ABI_ACT_SILU) {
    return InvalidArgument(CONCERT_MESSAGE_FIELD_VALUE, CONCERT_FIELD_ACTIVATION, body.activation,
                           CONCERT_ABI_ACT_SILU);
  }
  if ((body.flags & ~CONCERT_GEMM_ALLOW_TF32) != 0) {
    return InvalidArgument(CONCERT_MESSAGE_FIELD_VALUE, CONCERT_FIELD_FLAGS, body.flags,
                           CONCERT_GEMM_ALLOW_TF32);
  }
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_M, body.m, 1, kMaxGemmDimension));
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_N, body.n, 1, kMaxGemmDimension));
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_K, body.k, 1, kMaxGemmDimension));
  return CheckRange(CONCERT_FIELD_BATCH, body.batch, 1, kMaxGemmBatch);
}

Failure CheckRowStride(concert_field field, uint64_t stride, uint64_t row) {
  if (stride >= row) return {};
  return InvalidArgument(CONCERT_MESSAGE_STRIDE_TOO_SMALL, field, stride, row);
}

Failure CheckRowStrides(const concert_gemm_body& body, bool reads_c) {
  CONCERT_RETURN_IF_FAILED(CheckRowStride(CONCERT_FIELD_LDA, body.lda, body.k));
  CONCERT_RETURN_IF_FAILED(CheckRowStride(CONCERT_FIELD_LDW, body.ldw, body.k));
  CONCERT_RETURN_IF_FAILED(CheckRowStride(CONCERT_FIELD_LDD, body.ldd, body.n));
  return reads_c ? CheckRowStride(CONCERT_FIELD_LDC, body.ldc, body.n) : Failure{};
}

// The matrices of D must be disjoint: one after the other, or interleaved by rows (as heads of
// attention are).
Failure CheckBatchOfD(const concert_gemm_body& body) {
  if (body.batch == 1) return {};
  const std::optional<uint64_t> matrix = SpanElements(body.m, body.n, body.ldd, 1, 0);
  if (!matrix) return InvalidArgument(CONCERT_MESSAGE_OVERFLOW, CONCERT_FIELD_D);
  if (body.stride_d >= *matrix) return {};
  const std::optional<uint64_t> row_of_all = SpanElements(body.batch, body.n, body.stride_d, 1, 0);
  if (body.stride_d >= body.n && row_of_all && body.ldd >= *row_of_all) return {};
  return InvalidArgument(CONCERT_MESSAGE_BATCH_OVERLAP, CONCERT_FIELD_STRIDE_D, body.stride_d,
                         *matrix, CONCERT_FIELD_D);
}

struct Ranges {
  ByteRange a, w, c, d, bias;
};

Failure ResolveOperands(OperandResolver& resolver, const concert_gemm_body& body, bool reads_c,
                        Ranges& ranges) {
  const uint32_t element = DtypeBytes(static_cast<Dtype>(body.dtype));
  CONCERT_RETURN_IF_FAILED(resolver.Resolve(
      CONCERT_FIELD_A, body.a, SpanElements(body.m, body.k, body.lda, body.batch, body.stride_a),
      element, ranges.a));
  CONCERT_RETURN_IF_FAILED(resolver.Resolve(
      CONCERT_FIELD_W, body.w, SpanElements(body.n, body.k, body.ldw, body.batch, body.stride_w),
      element, ranges.w));
  CONCERT_RETURN_IF_FAILED(resolver.Resolve(
      CONCERT_FIELD_D, body.d, SpanElements(body.m, body.n, body.ldd, body.batch, body.stride_d),
      element, ranges.d));
  if (reads_c) {
    CONCERT_RETURN_IF_FAILED(resolver.Resolve(
        CONCERT_FIELD_C, body.c, SpanElements(body.m, body.n, body.ldc, body.batch, body.stride_c),
        element, ranges.c));
  }
  if (body.bias.buffer != 0) {
    CONCERT_RETURN_IF_FAILED(
        resolver.Resolve(CONCERT_FIELD_BIAS, body.bias, uint64_t{body.n}, element, ranges.bias));
  }
  return {};
}

Failure CheckOverlap(const concert_gemm_body& body, const Ranges& ranges) {
  const auto overlap = [](concert_field input) {
    return InvalidArgument(CONCERT_MESSAGE_OVERLAP, CONCERT_FIELD_D, input);
  };
  if (ranges.d.Overlaps(ranges.a)) return overlap(CONCERT_FIELD_A);
  if (ranges.d.Overlaps(ranges.w)) return overlap(CONCERT_FIELD_W);
  if (ranges.d.Overlaps(ranges.bias)) return overlap(CONCERT_FIELD_BIAS);
  const bool in_place = ranges.d == ranges.c && body.ldd == body.ldc &&
                        (body.batch == 1 || body.stride_d == body.stride_c);
  if (ranges.d.Overlaps(ranges.c) && !in_place) return overlap(CONCERT_FIELD_C);
  return {};
}

policies::Work WorkOf(const concert_gemm_body& body, bool reads_c) {
  const uint64_t m = body.m, n = body.n, k = body.k, batch = body.batch;
  const auto matrices = [batch](uint64_t stride) { return stride == 0 ? 1 : batch; };
  uint64_t elements = SaturatingMultiply(m * k, matrices(body.stride_a));
  elements = SaturatingAdd(elements, SaturatingMultiply(n * k, matrices(body.stride_w)));
  elements = SaturatingAdd(elements, SaturatingMultiply(m * n, batch));
  if (reads_c)
    elements = SaturatingAdd(elements, SaturatingMultiply(m * n, matrices(body.stride_c)));
  if (body.bias.buffer != 0) elements = SaturatingAdd(elements, n);

  policies::Work work;
  work.category = policies::Category::kGemm;
  work.dtype = static_cast<Dtype>(body.dtype);
  work.allow_tf32 = (body.flags & CONCERT_GEMM_ALLOW_TF32) != 0;
  work.m = body.m;
  work.n = body.n;
  work.k = body.k;
  work.batch = body.batch;
  work.flops = SaturatingMultiply(SaturatingMultiply(2 * m * n, k), batch);
  work.hbm_bytes = SaturatingMultiply(elements, DtypeBytes(work.dtype));
  return work;
}

}  // namespace

Failure AdmitGemm(const concert_descriptor& descriptor, const AdmitContext& context, Op& op) {
  const concert_gemm_body& body = descriptor.body.gemm;
  const bool reads_c = body.beta != 0;  // true for NaN
  CONCERT_RETURN_IF_FAILED(CheckScalars(descriptor, body));
  CONCERT_RETURN_IF_FAILED(CheckRowStrides(body, reads_c));
  CONCERT_RETURN_IF_FAILED(CheckBatchOfD(body));
  OperandResolver resolver(descriptor, context, op);
  Ranges ranges;
  CONCERT_RETURN_IF_FAILED(ResolveOperands(resolver, body, reads_c, ranges));
  CONCERT_RETURN_IF_FAILED(CheckOverlap(body, ranges));

  op.kind = CONCERT_OP_GEMM;
  op.work = WorkOf(body, reads_c);
  op.gemm = {.m = body.m,
             .n = body.n,
             .k = body.k,
             .batch = body.batch,
             .a = ranges.a.begin,
             .w = ranges.w.begin,
             .c = ranges.c.begin,
             .d = ranges.d.begin,
             .bias = ranges.bias.begin,
             .lda = body.lda,
             .ldw = body.ldw,
             .ldc = body.ldc,
             .ldd = body.ldd,
             .stride_a = body.stride_a,
             .stride_w = body.stride_w,
             .stride_c = body.stride_c,
             .stride_d = body.stride_d,
             .alpha = body.alpha,
             .beta = body.beta,
             .dtype = op.work.dtype,
             .activation = static_cast<Activation>(body.activation),
             .allow_tf32 = op.work.allow_tf32};
  return {};
}

OpRanges RangesOfGemm(const Op& op) {
  const GemmArgs& gemm = op.gemm;
  // Admission has checked that these products fit in 64 bits.
  const auto range = [&gemm](Address begin, uint64_t rows, uint64_t columns, uint64_t row_stride,
                             uint64_t batch_stride) -> ByteRange {
    if (begin == 0) return {};
    const uint64_t elements = (gemm.batch - 1) * batch_stride + (rows - 1) * row_stride + columns;
    return {begin, begin + elements * DtypeBytes(gemm.dtype)};
  };
  return {.written = range(gemm.d, gemm.m, gemm.n, gemm.ldd, gemm.stride_d),
          .input = range(gemm.a, gemm.m, gemm.k, gemm.lda, gemm.stride_a),
          .constants = {range(gemm.w, gemm.n, gemm.k, gemm.ldw, gemm.stride_w),
                        range(gemm.c, gemm.m, gemm.n, gemm.ldc, gemm.stride_c),
                        range(gemm.bias, 1, gemm.n, 0, 0)}};
}

}  // namespace concert::kernels
