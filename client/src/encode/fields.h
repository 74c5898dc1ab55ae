// What encoders of several kinds of op need.
#ifndef CONCERT_CLIENT_SRC_ENCODE_FIELDS_H_
#define CONCERT_CLIENT_SRC_ENCODE_FIELDS_H_

#include <cstddef>
#include <cstdint>

#include "client/src/handles.h"
#include "proto/ring/ring_abi.h"

namespace concert::client {

inline concert_operand Operand(const concert_slice& slice) {
  return {slice.buffer == nullptr ? 0 : slice.buffer->id, 0, slice.offset};
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

// The id of a buffer of the parent's session may be another buffer's in the child's.
template <size_t N>
int CheckOrigins(const concert_slice* const (&slices)[N], concert_error* error) {
  if (!InForkedProcess()) return CONCERT_OK;
  for (const concert_slice* slice : slices) {
    if (slice->buffer != nullptr && slice->buffer->origin.forked()) {
      return FailForked("buffer", error);
    }
  }
  return CONCERT_OK;
}

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_ENCODE_FIELDS_H_
