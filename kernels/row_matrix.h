// Admission of ops whose operands are rows that are computed each for itself.
#ifndef CONCERT_KERNELS_ROW_MATRIX_H_
#define CONCERT_KERNELS_ROW_MATRIX_H_

#include <cstdint>

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

// OperandResolver::Resolve for all rows, after a look at their stride.
inline Failure ResolveRows(OperandResolver& resolver, RowFields fields,
                           const concert_operand& operand, const RowMatrix& matrix, Dtype dtype,
                           ByteRange& range) {
  if (matrix.row_stride < matrix.columns) {
    return InvalidArgument(CONCERT_MESSAGE_STRIDE_TOO_SMALL, fields.stride, matrix.row_stride,
                           matrix.columns);
  }
  return resolver.Resolve(
      fields.operand, operand,
      SpanElements(matrix.rows, matrix.columns, matrix.row_stride, /*batch=*/1, /*batch_stride=*/0),
      DtypeBytes(dtype), range);
}

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_ROW_MATRIX_H_
