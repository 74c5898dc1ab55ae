#include "kernels/validate.h"

namespace concert::kernels {

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
  if (((buffer.address + operand.offset) & (element_bytes - 1)) != 0) {
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
