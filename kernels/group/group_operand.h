// Which operands a group launch can take: as they lie, or from a copy that it makes first.
#ifndef CONCERT_KERNELS_GROUP_GROUP_OPERAND_H_
#define CONCERT_KERNELS_GROUP_GROUP_OPERAND_H_

#include <cstdint>
#include <optional>

#include "kernels/group/plan/work_list.h"
#include "kernels/op.h"

namespace concert::kernels {

// Bounds of tensor maps (CUDA driver API, cuTensorMapEncodeTiled): addresses and row strides are
// multiples of 16 bytes, row strides are less than 2^40 bytes.
inline constexpr uint64_t kGroupAlignment = 16;
inline constexpr uint64_t kGroupMaxRowBytes = uint64_t{1} << 40;
// Where the rows of copies begin: tensor copies fetch whole 128-byte lines.
inline constexpr uint64_t kRepackAlignment = 128;

// A matrix as it lies in memory.
struct GroupOperand {
  Address begin = 0;
  uint64_t row_stride = 0;  // elements
  uint32_t rows = 0, columns = 0;
  uint32_t element_bytes = 0;

  static constexpr GroupOperand A(const GemmArgs& gemm) {
    return {gemm.a, gemm.lda, gemm.m, gemm.k, DtypeBytes(gemm.dtype)};
  }
  static constexpr GroupOperand W(const GemmArgs& gemm) {
    return {gemm.w, gemm.ldw, gemm.n, gemm.k, DtypeBytes(gemm.dtype)};
  }
  static constexpr GroupOperand D(const GemmArgs& gemm) {
    return {gemm.d, gemm.ldd, gemm.m, gemm.n, DtypeBytes(gemm.d_dtype)};
  }

  // Whether a tensor map takes it as it lies.
  constexpr bool MapTakes() const {
    const uint64_t row_bytes = row_stride * element_bytes;
    // The stride first: its product with the bytes of an element may have wrapped.
    return row_stride < kGroupMaxRowBytes && row_bytes < kGroupMaxRowBytes &&
           (begin | row_bytes) % kGroupAlignment == 0;
  }
  // Of a copy that one takes, whose rows begin at multiples of kRepackAlignment. Below 2^51:
  // admission bounds dimensions by 2^24.
  constexpr uint64_t RepackedRowBytes() const {
    const uint64_t bytes = uint64_t{columns} * element_bytes;
    return (bytes + kRepackAlignment - 1) / kRepackAlignment * kRepackAlignment;
  }
  constexpr uint64_t RepackedBytes() const { return rows * RepackedRowBytes(); }
};

// What a group launch writes to its scratch before it can compute `gemm`: copies of A and W, where
// a tensor map does not take them. Nullopt: no group launch can carry this GEMM. The rule is in
// kernels/gemm/gemm_op.h.
constexpr std::optional<uint32_t> GroupRepackBytes(const GemmArgs& gemm) {
  if (gemm.batch != 1 || gemm.dtype == Dtype::kFp32) return std::nullopt;
  if (gemm.residual || gemm.gated) return std::nullopt;  // the group kernel knows neither
  if (uint64_t{gemm.k} * DtypeBytes(gemm.dtype) > kGroupMaxKBytes) return std::nullopt;
  uint64_t bytes = 0;
  for (const GroupOperand& operand : {GroupOperand::A(gemm), GroupOperand::W(gemm)}) {
    if (!operand.MapTakes()) bytes += operand.RepackedBytes();
  }
  if (bytes > kGroupRepackBytes) return std::nullopt;
  return static_cast<uint32_t>(bytes);
}

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_GROUP_GROUP_OPERAND_H_
