#include "kernels/gemm/gemm_op.h"

#include <bit>
#include <optional>

#include "kernels/group/group_operand.h"
#include "kernels/validate.h"

namespace concert::kernels {
namespace {

constexpr uint32_t kScaleBytes = sizeof(float);
constexpr uint16_t kAllFlags = CONCERT_GEMM_ALLOW_TF32 | CONCERT_GEMM_A_SCALES_PER_ROW |
                               CONCERT_GEMM_W_SCALES_PER_ROW | CONCERT_GEMM_RESIDUAL |
                               CONCERT_GEMM_GATED | CONCERT_GEMM_GATE_INTERLEAVED;

bool ReservedIsZero(const concert_descriptor& descriptor, const concert_gemm_body& body) {
  return HeaderReservedIsZero(descriptor) &&
         (body.reserved0[0] | body.reserved0[1] | body.reserved0[2]) == 0 &&
         (body.c.scales | body.d.scales | body.bias.scales) == 0;
}

bool IsGated(const concert_gemm_body& body) { return (body.flags & CONCERT_GEMM_GATED) != 0; }

// The columns of D. REQUIRES: CheckEpilogue was OK.
uint32_t ColumnsOfD(const concert_gemm_body& body) { return IsGated(body) ? body.n / 2 : body.n; }

// The dtype of C, D and bias. REQUIRES: CheckDtypes was OK.
Dtype DtypeOfD(const concert_gemm_body& body) {
  return static_cast<Dtype>(body.d_dtype != 0 ? body.d_dtype : body.dtype);
}

Failure CheckDtypes(const concert_gemm_body& body) {
  CONCERT_RETURN_IF_FAILED(CheckDtype(body.dtype, CONCERT_ABI_FP8_E4M3));
  if (body.dtype == CONCERT_ABI_FP8_E4M3) {
    if (body.d_dtype == CONCERT_ABI_BF16 || body.d_dtype == CONCERT_ABI_FP16) return {};
    return InvalidArgument(CONCERT_MESSAGE_D_DTYPE_FP8, body.d_dtype, body.dtype);
  }
  if (body.d_dtype == 0 || body.d_dtype == body.dtype) return {};
  return InvalidArgument(CONCERT_MESSAGE_D_DTYPE_OTHER, body.d_dtype, body.dtype);
}

// The scales of A or of W, as they are described in concert_gemm_body.
struct Scales {
  concert_field field;
  concert_operand operand;
  bool per_row;
  uint32_t rows;

  uint64_t count() const { return per_row ? rows : 1; }
};

Scales ScalesOfA(const concert_gemm_body& body) {
  return {CONCERT_FIELD_A_SCALES,
          {body.a.scales, 0, body.a_scales_offset},
          (body.flags & CONCERT_GEMM_A_SCALES_PER_ROW) != 0,
          body.m};
}

Scales ScalesOfW(const concert_gemm_body& body) {
  return {CONCERT_FIELD_W_SCALES,
          {body.w.scales, 0, body.w_scales_offset},
          (body.flags & CONCERT_GEMM_W_SCALES_PER_ROW) != 0,
          body.n};
}

// Whether the body says anything of scales.
bool HasScales(const concert_gemm_body& body) {
  constexpr uint16_t kFlags = CONCERT_GEMM_A_SCALES_PER_ROW | CONCERT_GEMM_W_SCALES_PER_ROW;
  return (body.flags & kFlags) != 0 ||
         (body.a.scales | body.w.scales | body.a_scales_offset | body.w_scales_offset) != 0;
}

Failure CheckScales(const concert_gemm_body& body, const Scales& scales) {
  const bool present = scales.operand.buffer != 0;
  const bool of_rows_of_a = scales.field == CONCERT_FIELD_A_SCALES && scales.per_row;
  if (body.dtype == CONCERT_ABI_FP8_E4M3 || of_rows_of_a) {
    if (present || !scales.per_row) return {};
    return InvalidArgument(CONCERT_MESSAGE_SCALES_MISSING, scales.field);
  }
  if (!present && !scales.per_row && scales.operand.offset == 0) return {};
  return InvalidArgument(CONCERT_MESSAGE_SCALES_UNUSED, scales.field, body.dtype);
}

Failure CheckGate(const concert_gemm_body& body) {
  if (!IsGated(body)) {
    if ((body.flags & CONCERT_GEMM_GATE_INTERLEAVED) == 0) return {};
    return InvalidArgument(CONCERT_MESSAGE_INTERLEAVED_WITHOUT_GATE, body.flags, CONCERT_GEMM_GATED,
                           CONCERT_GEMM_GATE_INTERLEAVED);
  }
  if (body.activation != CONCERT_ABI_ACT_GELU && body.activation != CONCERT_ABI_ACT_SILU)
    return InvalidArgument(CONCERT_MESSAGE_GATE_ACTIVATION, body.activation);
  if (body.beta != 0)
    return InvalidArgument(CONCERT_MESSAGE_GATE_WITH_C, std::bit_cast<uint32_t>(body.beta));
  return CheckMultiple(CONCERT_FIELD_N, body.n, 2);
}

// What flags ask for beyond the product needs what they name.
Failure CheckEpilogue(const concert_gemm_body& body) {
  if ((body.flags & CONCERT_GEMM_RESIDUAL) != 0 && body.beta == 0) {
    return InvalidArgument(CONCERT_MESSAGE_RESIDUAL_WITHOUT_C, body.flags, CONCERT_GEMM_RESIDUAL);
  }
  return CheckGate(body);
}

Failure CheckScalars(const concert_descriptor& descriptor, const concert_gemm_body& body) {
  CONCERT_RETURN_IF_FAILED(CheckReserved(descriptor, ReservedIsZero(descriptor, body)));
  CONCERT_RETURN_IF_FAILED(CheckDtypes(body));
  if (body.activation > CONCERT_ABI_ACT_SILU) {
    return InvalidArgument(CONCERT_MESSAGE_FIELD_VALUE, CONCERT_FIELD_ACTIVATION, body.activation,
                           CONCERT_ABI_ACT_SILU);
  }
  if ((body.flags & ~kAllFlags) != 0) {
    return InvalidArgument(CONCERT_MESSAGE_FIELD_VALUE, CONCERT_FIELD_FLAGS, body.flags, kAllFlags);
  }
  CONCERT_RETURN_IF_FAILED(CheckEpilogue(body));
  if (HasScales(body)) {
    CONCERT_RETURN_IF_FAILED(CheckScales(body, ScalesOfA(body)));
    CONCERT_RETURN_IF_FAILED(CheckScales(body, ScalesOfW(body)));
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
  CONCERT_RETURN_IF_FAILED(CheckRowStride(CONCERT_FIELD_LDD, body.ldd, ColumnsOfD(body)));
  return reads_c ? CheckRowStride(CONCERT_FIELD_LDC, body.ldc, body.n) : Failure{};
}

// The matrices of D must be disjoint: one after the other, or interleaved by rows (as heads of
// attention are).
Failure CheckBatchOfD(const concert_gemm_body& body) {
  if (body.batch == 1) return {};
  const uint32_t columns = ColumnsOfD(body);
  const std::optional<uint64_t> matrix = SpanElements(body.m, columns, body.ldd, 1, 0);
  if (!matrix) return InvalidArgument(CONCERT_MESSAGE_OVERFLOW, CONCERT_FIELD_D);
  if (body.stride_d >= *matrix) return {};
  const std::optional<uint64_t> row_of_all = SpanElements(body.batch, columns, body.stride_d, 1, 0);
  if (body.stride_d >= columns && row_of_all && body.ldd >= *row_of_all) return {};
  return InvalidArgument(CONCERT_MESSAGE_BATCH_OVERLAP, CONCERT_FIELD_STRIDE_D, body.stride_d,
                         *matrix, CONCERT_FIELD_D);
}

struct Ranges {
  Ranges() {}  // one by one: gcc clears an aggregate of this size with a slow `rep stos`
  ByteRange a, w, c, d, bias, a_scales, w_scales;
};

Failure ResolveScales(OperandResolver& resolver, const Scales& scales, ByteRange& range) {
  if (scales.operand.buffer == 0) return {};
  return resolver.Resolve(scales.field, scales.operand, scales.count(), kScaleBytes, range);
}

Failure ResolveOperands(OperandResolver& resolver, const concert_gemm_body& body, bool reads_c,
                        Ranges& ranges) {
  const uint32_t element = DtypeBytes(static_cast<Dtype>(body.dtype));
  const uint32_t d_element = DtypeBytes(DtypeOfD(body));
  CONCERT_RETURN_IF_FAILED(resolver.Resolve(
      CONCERT_FIELD_A, body.a, SpanElements(body.m, body.k, body.lda, body.batch, body.stride_a),
      element, ranges.a));
  CONCERT_RETURN_IF_FAILED(resolver.Resolve(
      CONCERT_FIELD_W, body.w, SpanElements(body.n, body.k, body.ldw, body.batch, body.stride_w),
      element, ranges.w));
  CONCERT_RETURN_IF_FAILED(
      resolver.Resolve(CONCERT_FIELD_D, body.d,
                       SpanElements(body.m, ColumnsOfD(body), body.ldd, body.batch, body.stride_d),
                       d_element, ranges.d));
  if (reads_c) {
    CONCERT_RETURN_IF_FAILED(resolver.Resolve(
        CONCERT_FIELD_C, body.c, SpanElements(body.m, body.n, body.ldc, body.batch, body.stride_c),
        d_element, ranges.c));
  }
  if (body.bias.buffer != 0) {
    CONCERT_RETURN_IF_FAILED(
        resolver.Resolve(CONCERT_FIELD_BIAS, body.bias, uint64_t{body.n}, d_element, ranges.bias));
  }
  if (!HasScales(body)) return {};
  CONCERT_RETURN_IF_FAILED(ResolveScales(resolver, ScalesOfA(body), ranges.a_scales));
  return ResolveScales(resolver, ScalesOfW(body), ranges.w_scales);
}

Failure CheckOverlap(const concert_gemm_body& body, const Ranges& ranges) {
  const auto overlap = [](concert_field input) {
    return InvalidArgument(CONCERT_MESSAGE_OVERLAP, CONCERT_FIELD_D, input);
  };
  if (ranges.d.Overlaps(ranges.a)) return overlap(CONCERT_FIELD_A);
  if (ranges.d.Overlaps(ranges.w)) return overlap(CONCERT_FIELD_W);
  if (ranges.d.Overlaps(ranges.bias)) return overlap(CONCERT_FIELD_BIAS);
  if (ranges.d.Overlaps(ranges.a_scales)) return overlap(CONCERT_FIELD_A_SCALES);
  if (ranges.d.Overlaps(ranges.w_scales)) return overlap(CONCERT_FIELD_W_SCALES);
  const bool in_place = ranges.d == ranges.c && body.ldd == body.ldc &&
                        (body.batch == 1 || body.stride_d == body.stride_c);
  if (ranges.d.Overlaps(ranges.c) && !in_place) return overlap(CONCERT_FIELD_C);
  return {};
}

// Each operand moved once, whatever its strides.
uint64_t BytesOf(const concert_gemm_body& body, bool reads_c) {
  const uint64_t m = body.m, n = body.n, k = body.k, batch = body.batch;
  const auto matrices = [batch](uint64_t stride) { return stride == 0 ? 1 : batch; };
  uint64_t in = SaturatingMultiply(m * k, matrices(body.stride_a));
  in = SaturatingAdd(in, SaturatingMultiply(n * k, matrices(body.stride_w)));
  uint64_t out = SaturatingMultiply(m * ColumnsOfD(body), batch);
  if (reads_c) out = SaturatingAdd(out, SaturatingMultiply(m * n, matrices(body.stride_c)));
  if (body.bias.buffer != 0) out = SaturatingAdd(out, n);
  const uint64_t matrix_bytes =
      SaturatingAdd(SaturatingMultiply(in, DtypeBytes(static_cast<Dtype>(body.dtype))),
                    SaturatingMultiply(out, DtypeBytes(DtypeOfD(body))));
  uint64_t scales = 0;
  for (const Scales& of : {ScalesOfA(body), ScalesOfW(body)})
    scales += of.operand.buffer != 0 ? of.count() * kScaleBytes : 0;
  return SaturatingAdd(matrix_bytes, scales);
}

policies::Work WorkOf(const concert_gemm_body& body, bool reads_c, const GemmArgs& gemm) {
  const uint64_t m = body.m, n = body.n, k = body.k, batch = body.batch;
  policies::Work work;
  work.runs_on = policies::RunsOn::kSms;
  work.dtype = gemm.dtype;
  work.allow_tf32 = gemm.allow_tf32;
  work.m = body.m;
  work.n = body.n;
  work.k = body.k;
  work.batch = body.batch;
  work.flops = SaturatingMultiply(SaturatingMultiply(2 * m * n, k), batch);
  work.hbm_bytes = BytesOf(body, reads_c);
  const std::optional<uint32_t> repack_bytes = GroupRepackBytes(gemm);
  work.carrier = repack_bytes.has_value() ? policies::Carrier::kGroup : policies::Carrier::kNone;
  work.repack_bytes = repack_bytes.value_or(0);
  return work;
}

}  // namespace

Failure AdmitGemm(const concert_descriptor& descriptor, const AdmitContext& context, Op& op) {
  const concert_gemm_body& body = descriptor.body.gemm;
  const bool reads_c = body.beta != 0;  // true for NaN
  CONCERT_RETURN_IF_FAILED(CheckScalars(descriptor, body));
  CONCERT_RETURN_IF_FAILED(CheckRowStrides(body, reads_c));
  CONCERT_RETURN_IF_FAILED(CheckBatchOfD(body));
  OperandResolver resolver(context, op);
  Ranges ranges;
  CONCERT_RETURN_IF_FAILED(ResolveOperands(resolver, body, reads_c, ranges));
  CONCERT_RETURN_IF_FAILED(CheckOverlap(body, ranges));

  op.kind = CONCERT_OP_GEMM;
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
             .a_scales = ranges.a_scales.begin,
             .w_scales = ranges.w_scales.begin,
             .dtype = static_cast<Dtype>(body.dtype),
             .d_dtype = DtypeOfD(body),
             .activation = static_cast<Activation>(body.activation),
             .allow_tf32 = (body.flags & CONCERT_GEMM_ALLOW_TF32) != 0,
             .a_scales_per_row = ScalesOfA(body).per_row,
             .w_scales_per_row = ScalesOfW(body).per_row,
             .residual = (body.flags & CONCERT_GEMM_RESIDUAL) != 0 &&
                         body.activation != CONCERT_ABI_ACT_NONE,
             .gated = IsGated(body),
             .interleaved = (body.flags & CONCERT_GEMM_GATE_INTERLEAVED) != 0};
  op.work = WorkOf(body, reads_c, op.gemm);
  return {};
}

Accesses AccessesOfGemm(const Op& op) {
  const GemmArgs& gemm = op.gemm;
  Accesses accesses;
  const auto matrix = [&](concert_field field, AccessMode mode, Address begin, Dtype dtype,
                          uint64_t rows, uint64_t columns, uint64_t row_stride,
                          uint64_t batch_stride) {
    const uint64_t element = DtypeBytes(dtype);
    accesses.Add(op, field, mode)
        .Set(begin, columns * element, rows, row_stride * element, gemm.batch,
             batch_stride * element);
  };
  const auto vector = [&](concert_field field, Address begin, uint64_t bytes) {
    if (begin == 0) return;
    accesses.Add(op, field, AccessMode::kRead).Set(begin, bytes);
  };
  const auto scales = [&](concert_field field, Address begin, bool per_row, uint64_t rows) {
    vector(field, begin, (per_row ? rows : 1) * kScaleBytes);
  };
  // As ResolveOperands.
  matrix(CONCERT_FIELD_A, AccessMode::kRead, gemm.a, gemm.dtype, gemm.m, gemm.k, gemm.lda,
         gemm.stride_a);
  matrix(CONCERT_FIELD_W, AccessMode::kReadEarly, gemm.w, gemm.dtype, gemm.n, gemm.k, gemm.ldw,
         gemm.stride_w);
  matrix(CONCERT_FIELD_D, AccessMode::kWrite, gemm.d, gemm.d_dtype, gemm.m, gemm.d_columns(),
         gemm.ldd, gemm.stride_d);
  if (gemm.c != 0) {
    matrix(CONCERT_FIELD_C, AccessMode::kRead, gemm.c, gemm.d_dtype, gemm.m, gemm.n, gemm.ldc,
           gemm.stride_c);
  }
  vector(CONCERT_FIELD_BIAS, gemm.bias, gemm.n * uint64_t{DtypeBytes(gemm.d_dtype)});
  scales(CONCERT_FIELD_A_SCALES, gemm.a_scales, gemm.a_scales_per_row, gemm.m);
  scales(CONCERT_FIELD_W_SCALES, gemm.w_scales, gemm.w_scales_per_row, gemm.n);
  return accesses;
}

}  // namespace concert::kernels
