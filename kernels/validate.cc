#include "kernels/validate.h"

#include <limits>

namespace concert::kernels {

Failure CheckRange(concert_field field, uint64_t value, uint64_t min, uint64_t max) {
  if (value >= min && value <= max) return {};
  return InvalidArgument(CONCERT_MESSAGE_FIELD_RANGE, field, value, min, max);
}

Failure CheckDtype(uint8_t dtype, concert_dtype_abi highest) {
  if (dtype >= CONCERT_ABI_BF16 && dtype <= highest) return {};
  return InvalidArgument(CONCERT_MESSAGE_FIELD_VALUE, CONCERT_FIELD_DTYPE, dtype, highest);
}

Failure CheckReserved(const concert_descriptor& descriptor, bool all_zero) {
  if (all_zero) return {};
  return InvalidArgument(CONCERT_MESSAGE_RESERVED_NOT_ZERO, descriptor.kind);
}

bool HeaderReservedIsZero(const concert_descriptor& descriptor) {
  return (descriptor.flags | descriptor.reserved0 | descriptor.reserved1[0] |
          descriptor.reserved1[1] | descriptor.reserved1[2]) == 0;
}

std::optional<uint64_t> SpanElements(uint64_t rows, uint64_t columns, uint64_t row_stride,
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

uint64_t SaturatingMultiply(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<uint64_t>::max() : product;
}

uint64_t SaturatingAdd(uint64_t a, uint64_t b) {
  uint64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<uint64_t>::max() : sum;
}

OperandResolver::OperandResolver(const AdmitContext& context, Op& op) : context_(context), op_(op) {
  op.buffers.fill(0);
  op.buffer_count = 0;
}

Failure OperandResolver::Resolve(concert_field field, const concert_operand& operand,
                                 std::optional<uint64_t> elements, uint32_t element_bytes,
                                 ByteRange& range) {
  if (operand.buffer == 0) return InvalidArgument(CONCERT_MESSAGE_BUFFER_MISSING, field);
  if (operand.buffer >= context_.buffers.size() || context_.buffers[operand.buffer].bytes == 0) {
    return {CONCERT_ABI_NOT_FOUND, CONCERT_MESSAGE_NO_BUFFER, {field, operand.buffer}};
  }
  const BufferRange& buffer = context_.buffers[operand.buffer];
  if (buffer.gpu != context_.gpu && !buffer.pool) {
    return InvalidArgument(CONCERT_MESSAGE_WRONG_GPU, field, static_cast<uint64_t>(buffer.gpu),
                           static_cast<uint64_t>(context_.gpu));
  }
  uint64_t bytes, end;
  if (!elements || __builtin_mul_overflow(*elements, element_bytes, &bytes) ||
      __builtin_add_overflow(operand.offset, bytes, &end)) {
    return InvalidArgument(CONCERT_MESSAGE_OVERFLOW, field);
  }
  if ((buffer.address + operand.offset) % element_bytes != 0) {
    return InvalidArgument(CONCERT_MESSAGE_MISALIGNED, field, operand.offset, element_bytes);
  }
  if (end > buffer.bytes) {
    return InvalidArgument(CONCERT_MESSAGE_OUT_OF_BOUNDS, field, bytes, operand.offset,
                           operand.buffer, buffer.bytes);
  }
  range = {buffer.address + operand.offset, buffer.address + end};
  op_.buffers[op_.buffer_count++] = operand.buffer;
  return {};
}

}  // namespace concert::kernels
