#include "client/src/local/gemm_checks.h"

#include <bit>
#include <cstdint>

namespace concert::client {
namespace {

using Wide = unsigned __int128;

constexpr uint64_t kDimensionMax = 1 << 24;
constexpr uint64_t kBatchMax = 1 << 16;
constexpr uint16_t kPerRowFlags = CONCERT_GEMM_A_SCALES_PER_ROW | CONCERT_GEMM_W_SCALES_PER_ROW;
constexpr uint16_t kFlags = CONCERT_GEMM_ALLOW_TF32 | kPerRowFlags | CONCERT_GEMM_RESIDUAL |
                            CONCERT_GEMM_GATED | CONCERT_GEMM_GATE_INTERLEAVED;

Refusal CheckRange(concert_field field, uint64_t value, uint64_t max) {
  if (value >= 1 && value <= max) return {};
  return {CONCERT_MESSAGE_FIELD_RANGE, {field, value, 1, max}};
}

Refusal CheckDtypes(const concert_gemm_body& op) {
  if (op.dtype < CONCERT_ABI_BF16 || op.dtype > CONCERT_ABI_FP8_E4M3) {
    return {CONCERT_MESSAGE_FIELD_VALUE, {CONCERT_FIELD_DTYPE, op.dtype, CONCERT_ABI_FP8_E4M3}};
  }
  if (op.dtype == CONCERT_ABI_FP8_E4M3) {
    if (op.d_dtype == CONCERT_ABI_BF16 || op.d_dtype == CONCERT_ABI_FP16) return {};
    return {CONCERT_MESSAGE_D_DTYPE_FP8, {op.d_dtype, op.dtype}};
  }
  if (op.d_dtype == 0 || op.d_dtype == op.dtype) return {};
  return {CONCERT_MESSAGE_D_DTYPE_OTHER, {op.d_dtype, op.dtype}};
}

Refusal CheckEpilogue(const concert_gemm_body& op) {
  if (op.activation > CONCERT_ABI_ACT_SILU) {
    return {CONCERT_MESSAGE_FIELD_VALUE,
            {CONCERT_FIELD_ACTIVATION, op.activation, CONCERT_ABI_ACT_SILU}};
  }
  if ((op.flags & ~kFlags) != 0)
    return {CONCERT_MESSAGE_FIELD_VALUE, {CONCERT_FIELD_FLAGS, op.flags, kFlags}};
  if ((op.flags & CONCERT_GEMM_RESIDUAL) != 0 && op.beta == 0)
    return {CONCERT_MESSAGE_RESIDUAL_WITHOUT_C, {op.flags, CONCERT_GEMM_RESIDUAL}};
  if (!IsGated(op)) {
    if ((op.flags & CONCERT_GEMM_GATE_INTERLEAVED) == 0) return {};
    return {CONCERT_MESSAGE_INTERLEAVED_WITHOUT_GATE,
            {op.flags, CONCERT_GEMM_GATED, CONCERT_GEMM_GATE_INTERLEAVED}};
  }
  if (op.activation != CONCERT_ABI_ACT_GELU && op.activation != CONCERT_ABI_ACT_SILU)
    return {CONCERT_MESSAGE_GATE_ACTIVATION, {op.activation}};
  if (op.beta != 0) return {CONCERT_MESSAGE_GATE_WITH_C, {std::bit_cast<uint32_t>(op.beta)}};
  if (op.n % 2 != 0) return {CONCERT_MESSAGE_NOT_MULTIPLE, {CONCERT_FIELD_N, op.n, 2}};
  return {};
}

Refusal CheckScales(const concert_gemm_body& op, concert_field field, uint32_t buffer,
                    uint64_t offset, uint16_t per_row_flag) {
  const bool per_row = (op.flags & per_row_flag) != 0;
  const bool of_rows_of_a = field == CONCERT_FIELD_A_SCALES && per_row;
  if (op.dtype == CONCERT_ABI_FP8_E4M3 || of_rows_of_a) {
    if (buffer != 0 || !per_row) return {};
    return {CONCERT_MESSAGE_SCALES_MISSING, {field}};
  }
  if (buffer == 0 && !per_row && offset == 0) return {};
  return {CONCERT_MESSAGE_SCALES_UNUSED, {field, op.dtype}};
}

Refusal CheckRowStride(concert_field field, uint64_t stride, uint64_t columns) {
  if (stride >= columns) return {};
  return {CONCERT_MESSAGE_STRIDE_TOO_SMALL, {field, stride, columns}};
}

// The matrices of D must be disjoint: one after the other, or interleaved by rows.
Refusal CheckBatchOfD(const concert_gemm_body& op) {
  if (op.batch == 1) return {};
  const uint32_t columns = ColumnsOfD(op);
  const Wide matrix = Wide{op.m - 1} * op.ldd + columns;
  if (matrix > UINT64_MAX) return {CONCERT_MESSAGE_OVERFLOW, {CONCERT_FIELD_D}};
  if (op.stride_d >= matrix) return {};
  const Wide row_of_all = Wide{op.batch - 1} * op.stride_d + columns;
  if (op.stride_d >= columns && op.ldd >= row_of_all) return {};
  return {CONCERT_MESSAGE_BATCH_OVERLAP,
          {CONCERT_FIELD_STRIDE_D, op.stride_d, static_cast<uint64_t>(matrix), CONCERT_FIELD_D}};
}

}  // namespace

Refusal CheckGemm(const concert_gemm_body& op) {
  Refusal why = CheckDtypes(op);
  const auto check = [&why](auto next) {
    if (!why.refused()) why = next();
  };
  check([&] { return CheckEpilogue(op); });
  check([&] {
    return CheckScales(op, CONCERT_FIELD_A_SCALES, op.a.scales, op.a_scales_offset,
                       CONCERT_GEMM_A_SCALES_PER_ROW);
  });
  check([&] {
    return CheckScales(op, CONCERT_FIELD_W_SCALES, op.w.scales, op.w_scales_offset,
                       CONCERT_GEMM_W_SCALES_PER_ROW);
  });
  check([&] { return CheckRange(CONCERT_FIELD_M, op.m, kDimensionMax); });
  check([&] { return CheckRange(CONCERT_FIELD_N, op.n, kDimensionMax); });
  check([&] { return CheckRange(CONCERT_FIELD_K, op.k, kDimensionMax); });
  check([&] { return CheckRange(CONCERT_FIELD_BATCH, op.batch, kBatchMax); });
  check([&] { return CheckRowStride(CONCERT_FIELD_LDA, op.lda, op.k); });
  check([&] { return CheckRowStride(CONCERT_FIELD_LDW, op.ldw, op.k); });
  check([&] { return CheckRowStride(CONCERT_FIELD_LDD, op.ldd, ColumnsOfD(op)); });
  if (op.beta != 0) check([&] { return CheckRowStride(CONCERT_FIELD_LDC, op.ldc, op.n); });
  check([&] { return CheckBatchOfD(op); });
  return why;
}

}  // namespace concert::client
