// Checks that admission of every kind shares. All arithmetic on a client's numbers is
// overflow-checked; nothing here reads a client's memory, allocates or formats.
#ifndef CONCERT_KERNELS_VALIDATE_H_
#define CONCERT_KERNELS_VALIDATE_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>

#include "kernels/failure.h"
#include "kernels/op.h"
#include "kernels/op_table.h"
#include "proto/ring/messages.h"
#include "proto/ring/ring_abi.h"

// Returns from the calling admit function when a check failed.
#define CONCERT_RETURN_IF_FAILED(check)                                  \
  do {                                                                   \
    if (const auto& failure_ = (check); !failure_.ok()) return failure_; \
  } while (false)

namespace concert::kernels {

// Defined here, since a check that holds then costs a comparison and makes no Failure.

// FIELD_RANGE unless min <= value <= max.
inline Failure CheckRange(concert_field field, uint64_t value, uint64_t min, uint64_t max) {
  if (value >= min && value <= max) return {};
  return InvalidArgument(CONCERT_MESSAGE_FIELD_RANGE, field, value, min, max);
}

// NOT_MULTIPLE unless `divisor`, which is not 0, divides `value`.
inline Failure CheckMultiple(concert_field field, uint64_t value, uint64_t divisor) {
  if (value % divisor == 0) return {};
  return InvalidArgument(CONCERT_MESSAGE_NOT_MULTIPLE, field, value, divisor);
}

// FIELD_VALUE unless `dtype` is a concert_dtype_abi up to `highest`.
inline Failure CheckDtype(uint8_t dtype, concert_dtype_abi highest) {
  if (dtype >= CONCERT_ABI_BF16 && dtype <= highest) return {};
  return InvalidArgument(CONCERT_MESSAGE_FIELD_VALUE, CONCERT_FIELD_DTYPE, dtype, highest);
}

// RESERVED_NOT_ZERO unless `all_zero`, naming the descriptor's kind.
inline Failure CheckReserved(const concert_descriptor& descriptor, bool all_zero) {
  if (all_zero) return {};
  return InvalidArgument(CONCERT_MESSAGE_RESERVED_NOT_ZERO, descriptor.kind);
}

// The reserved fields of the descriptor's first line, and flags that mean nothing for its kind.
inline bool HeaderReservedIsZero(const concert_descriptor& descriptor) {
  const bool flags_mean_something =
      descriptor.flags == CONCERT_OP_COULD_BE_RUN && ProgramsHold(descriptor.kind);
  return (descriptor.flags == 0 || flags_mean_something) &&
         (descriptor.reserved0 | descriptor.reserved1[0] | descriptor.reserved1[1] |
          descriptor.reserved1[2]) == 0;
}

// All words of a reserved array, or-ed together.
template <typename Word, size_t kCount>
uint64_t AnyOf(const Word (&words)[kCount]) {
  uint64_t any = 0;
  for (const Word word : words) any |= word;
  return any;
}

// The same of concert_operand.scales, of operands that have none.
inline uint64_t ScalesOf(std::initializer_list<concert_operand> operands) {
  uint64_t any = 0;
  for (const concert_operand& operand : operands) any |= operand.scales;
  return any;
}

// RESERVED_NOT_ZERO unless HeaderReservedIsZero and so are the body's reserved fields, which are
// `of_body` or-ed together.
inline Failure CheckUnused(const concert_descriptor& descriptor, uint64_t of_body) {
  return CheckReserved(descriptor, HeaderReservedIsZero(descriptor) && of_body == 0);
}

// FIELD_VALUE unless `flags` are among the bits of `known`.
inline Failure CheckFlags(uint16_t flags, uint16_t known) {
  if ((flags & ~known) == 0) return {};
  return InvalidArgument(CONCERT_MESSAGE_FIELD_VALUE, CONCERT_FIELD_FLAGS, flags, known);
}

// Elements from the first to the last of `batch` matrices of rows x columns at the given strides,
// all >= 1 but batch_stride. Null when that does not fit in 64 bits.
inline std::optional<uint64_t> SpanElements(uint64_t rows, uint64_t columns, uint64_t row_stride,
                                            uint64_t batch, uint64_t batch_stride) {
  uint64_t batches, matrix, span;
  if (__builtin_mul_overflow(batch - 1, batch_stride, &batches) ||
      __builtin_mul_overflow(rows - 1, row_stride, &matrix) ||
      __builtin_add_overflow(matrix, columns, &matrix) ||
      __builtin_add_overflow(batches, matrix, &span)) {
    return std::nullopt;
  }
  return span;
}

// a * b, or the largest number when that does not fit: for costs, which no check depends on.
inline uint64_t SaturatingMultiply(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<uint64_t>::max() : product;
}
inline uint64_t SaturatingAdd(uint64_t a, uint64_t b) {
  uint64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<uint64_t>::max() : sum;
}

// SEALED: `buffer`, a handle, would be written.
inline Failure WritesSealed(concert_field field, uint32_t buffer) {
  return {CONCERT_ABI_FAILED_PRECONDITION, CONCERT_MESSAGE_SEALED, {field, buffer}};
}

// Resolves operands of one descriptor to addresses and notes their buffers in the op, whose kind is
// known. Does not look at concert_operand.scales.
class OperandResolver {
 public:
  OperandResolver(const AdmitContext& context, Op& op) : context_(context), op_(op) {
    op.buffers.clear();
  }

  // `elements` elements of `element_bytes` (a power of two) from the operand's offset on. Checks,
  // in this order: present, a buffer of the session, on the ring's GPU or pool memory, size fits in
  // 64 bits, aligned to the element, in bounds, only read if it is sealed, room for its handle in
  // the op. `elements` is null
  // when the caller's span overflowed. Inline, whatever the compiler thinks of its size: a GEMM
  // calls it three times and more.
  [[gnu::always_inline]] Failure Resolve(concert_field field, const concert_operand& operand,
                                         std::optional<uint64_t> elements, uint32_t element_bytes,
                                         ByteRange& range) {
    if (operand.buffer == 0) return InvalidArgument(CONCERT_MESSAGE_BUFFER_MISSING, field);
    uint32_t index = operand.buffer & kBufferIndexMask;
    const BufferRange* found = context_.buffers.data() + index;
    if (index >= context_.buffers.size() || found->bytes == 0 ||
        found->generation != operand.buffer >> kBufferIndexBits) [[unlikely]] {
      found = SlotOf(operand.buffer);
      if (found == nullptr)
        return {CONCERT_ABI_NOT_FOUND, CONCERT_MESSAGE_NO_BUFFER, {field, operand.buffer}};
      index |= kSlotBit;
    }
    const BufferRange& buffer = *found;
    if (buffer.gpu != context_.gpu && !buffer.pool) {
      return InvalidArgument(CONCERT_MESSAGE_WRONG_GPU, field, static_cast<uint64_t>(buffer.gpu),
                             static_cast<uint64_t>(context_.gpu));
    }
    uint64_t bytes, end;
    if (!elements || __builtin_mul_overflow(*elements, element_bytes, &bytes) ||
        __builtin_add_overflow(operand.offset, bytes, &end)) {
      return InvalidArgument(CONCERT_MESSAGE_OVERFLOW, field);
    }
    if (((buffer.address + operand.offset) & (element_bytes - 1)) != 0) {
      return InvalidArgument(CONCERT_MESSAGE_MISALIGNED, field, operand.offset, element_bytes);
    }
    if (end > buffer.bytes) {
      return InvalidArgument(CONCERT_MESSAGE_OUT_OF_BOUNDS, field, bytes, operand.offset,
                             operand.buffer, buffer.bytes);
    }
    if (buffer.sealed && concert_op_writes(op_.kind, field)) [[unlikely]] {
      return WritesSealed(field, operand.buffer);
    }
    // No kind has more operands than kMaxOperands; one that came to have them would be refused
    // instead of writing past the array.
    if (op_.buffers.full()) {
      return {CONCERT_ABI_UNIMPLEMENTED,
              CONCERT_MESSAGE_UNSUPPORTED,
              {field, operand.buffer, op_.kind}};
    }
    range = {buffer.address + operand.offset, buffer.address + end};
    op_.buffers.push_back(index);
    return {};
  }

 private:
  const BufferRange* SlotOf(uint32_t handle) const {
    const uint32_t slot = handle & kBufferIndexMask;
    const bool found =
        handle >> kBufferIndexBits == kSlotGeneration && slot < context_.slots.size();
    return found ? &context_.slots[slot] : nullptr;
  }

  const AdmitContext& context_;
  Op& op_;
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_VALIDATE_H_
