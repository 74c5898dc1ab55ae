// What encoders of several kinds of op need.
#ifndef CONCERT_CLIENT_SRC_ENCODE_FIELDS_H_
#define CONCERT_CLIENT_SRC_ENCODE_FIELDS_H_

#include <cstddef>
#include <cstdint>

#include "client/src/handles.h"
#include "proto/ring/ring_abi.h"

namespace concert::client {

// Refuses the op unless `buffer`, which is not of the queue's session, is a slot of the program
// that is recorded on the queue.
[[gnu::cold, gnu::noinline]] void CheckOther(const char* name, const concert_buffer& buffer,
                                             EncodedOp* op);

// An operand, with its name in sentences. A buffer of another session makes the op refused: its id
// is that of another buffer to whoever takes the op.
inline concert_operand Operand(const char* name, const concert_slice& slice, EncodedOp* op) {
  const concert_buffer* buffer = slice.buffer;
  if (buffer == nullptr) return {0, 0, slice.offset};
  if (buffer->session != op->queue.session) [[unlikely]]
    CheckOther(name, *buffer, op);
  return {buffer->id, 0, slice.offset};
}

// Fields that are wider in concert.h than in the descriptor. A value that would be cut becomes the
// descriptor's highest, which no enum reaches, so that it is refused.
inline uint8_t Narrow8(uint32_t value) {
  return value > UINT8_MAX ? UINT8_MAX : static_cast<uint8_t>(value);
}
inline uint16_t Narrow16(uint32_t value) {
  return value > UINT16_MAX ? UINT16_MAX : static_cast<uint16_t>(value);
}

// concert.h: a stride of 0 is "without gaps".
inline uint64_t OrTight(uint64_t stride, uint64_t tight) { return stride != 0 ? stride : tight; }

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_ENCODE_FIELDS_H_
