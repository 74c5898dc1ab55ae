// Checks that admission of every kind shares. All arithmetic on a client's numbers is
// overflow-checked; nothing here reads a client's memory, allocates or formats.
#ifndef CONCERT_KERNELS_VALIDATE_H_
#define CONCERT_KERNELS_VALIDATE_H_

#include <cstdint>
#include <optional>

#include "kernels/failure.h"
#include "kernels/op.h"
#include "kernels/op_table.h"
#include "proto/ring/messages.h"
#include "proto/ring/ring_abi.h"

// Returns from the calling admit function when a check failed.
#define CONCERT_RETURN_IF_FAILED(check)                                 \
  do {                                                                  \
    if (const auto failure_ = (check); !failure_.ok()) return failure_; \
  } while (false)

namespace concert::kernels {

// FIELD_RANGE unless min <= value <= max.
Failure CheckRange(concert_field field, uint64_t value, uint64_t min, uint64_t max);

// FIELD_VALUE unless `dtype` is a concert_dtype_abi up to `highest`.
Failure CheckDtype(uint8_t dtype, concert_dtype_abi highest);

// RESERVED_NOT_ZERO unless `all_zero`, naming the descriptor's kind.
Failure CheckReserved(const concert_descriptor& descriptor, bool all_zero);

// The reserved fields and flags of the descriptor's first line.
bool HeaderReservedIsZero(const concert_descriptor& descriptor);

// Elements from the first to the last of `batch` matrices of rows x columns at the given strides,
// all >= 1 but batch_stride. Null when that does not fit in 64 bits.
std::optional<uint64_t> SpanElements(uint64_t rows, uint64_t columns, uint64_t row_stride,
                                     uint64_t batch, uint64_t batch_stride);

// a * b, or the largest number when that does not fit: for costs, which no check depends on.
uint64_t SaturatingMultiply(uint64_t a, uint64_t b);
uint64_t SaturatingAdd(uint64_t a, uint64_t b);

// Resolves operands of one descriptor to addresses and notes their buffers in the op. Does not look
// at concert_operand.scales.
class OperandResolver {
 public:
  OperandResolver(const AdmitContext& context, Op& op);

  // `elements` elements of `element_bytes` from the operand's offset on. Checks, in this order:
  // present, a buffer of the session, on the ring's GPU or pool memory, size fits in 64 bits,
  // aligned to the element, in bounds. `elements` is null when the caller's span overflowed.
  Failure Resolve(concert_field field, const concert_operand& operand,
                  std::optional<uint64_t> elements, uint32_t element_bytes, ByteRange& range);

 private:
  const AdmitContext& context_;
  Op& op_;
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_VALIDATE_H_
