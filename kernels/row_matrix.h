// Admission of ops whose operands are rows that are computed each for itself.
#ifndef CONCERT_KERNELS_ROW_MATRIX_H_
#define CONCERT_KERNELS_ROW_MATRIX_H_

#include <cstdint>
#include <optional>

#include "kernels/access.h"
#include "kernels/indices.h"
#include "kernels/validate.h"

namespace concert::kernels {

// Beyond any real layer.
inline constexpr uint64_t kMaxRows = 1 << 24;
inline constexpr uint64_t kMaxRowColumns = 1 << 24;

struct RowMatrix {
  uint64_t rows, columns;  // elements
  uint64_t row_stride;     // elements; at least `columns`
};

struct RowFields {
  concert_field operand, stride;
};

inline Failure CheckRowsAndColumns(uint64_t rows, uint64_t columns) {
  CONCERT_RETURN_IF_FAILED(CheckRange(CONCERT_FIELD_ROWS, rows, 1, kMaxRows));
  return CheckRange(CONCERT_FIELD_COLUMNS, columns, 1, kMaxRowColumns);
}

// FIELD_RANGE unless it is an IndexType.
inline Failure CheckIndexType(concert_field field, uint8_t dtype) {
  return CheckRange(field, dtype, CONCERT_ABI_INT32, CONCERT_ABI_INT64);
}

// What a kind lets be the same as x or y is its out, which it then reads, too.
inline bool IsInPlace(const Access& written, const Access& other) {
  return written.field == CONCERT_FIELD_OUT && written.mode == AccessMode::kReadWrite &&
         (other.field == CONCERT_FIELD_INPUT || other.field == CONCERT_FIELD_Y) &&
         written.memory == other.memory;
}

// OVERLAP if something that the op writes shares memory with another of its operands. Rows of one
// stride may lie side by side; operands whose bounds overlap otherwise are taken to share memory
// where that takes more than a look.
inline Failure CheckOverlaps(const Accesses& accesses) {
  constexpr int kPieces = 8;  // see Meet
  for (const Access& written : accesses.list()) {
    if (!written.writes()) continue;
    for (const Access& other : accesses.list()) {
      int pieces_left = kPieces;
      if (&other == &written || IsInPlace(written, other)) continue;
      if (Meet(written.memory, other.memory, pieces_left) || pieces_left <= 0) {
        return InvalidArgument(CONCERT_MESSAGE_OVERLAP, written.field, other.field);
      }
    }
  }
  return {};
}

// Units of `unit` elements; null if there is no number of elements.
inline std::optional<uint64_t> Units(std::optional<uint64_t> elements, uint32_t unit) {
  if (elements) *elements /= unit;
  return elements;
}

// OperandResolver::Resolve for all rows, after a look at their stride. `unit`: elements that are
// read at a time, to which the operand must be aligned. REQUIRES: it divides rows and strides.
inline Failure ResolveRows(OperandResolver& resolver, RowFields fields,
                           const concert_operand& operand, const RowMatrix& matrix, Dtype dtype,
                           ByteRange& range, uint32_t unit = 1) {
  if (matrix.row_stride < matrix.columns) {
    return InvalidArgument(CONCERT_MESSAGE_STRIDE_TOO_SMALL, fields.stride, matrix.row_stride,
                           matrix.columns);
  }
  return resolver.Resolve(fields.operand, operand,
                          Units(SpanElements(matrix.rows, matrix.columns, matrix.row_stride,
                                             /*batch=*/1, /*batch_stride=*/0),
                                unit),
                          unit * DtypeBytes(dtype), range);
}

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_ROW_MATRIX_H_
