// What an application asks for, as the descriptor that carries it: one overload of Encode and one
// file for each kind of op. Remote and local sessions take the same descriptors.
#ifndef CONCERT_CLIENT_SRC_ENCODE_ENCODE_H_
#define CONCERT_CLIENT_SRC_ENCODE_ENCODE_H_

#include <cstdint>

#include "concert/concert.h"
#include "proto/ring/ring_abi.h"

namespace concert::client {

struct EncodedOp {
  // Kind and body; what stands in front of them is the queue's business.
  concert_descriptor descriptor{};
  // Of a collective: the queue fills in its number and the op's sequence.
  concert_communicator* communicator = nullptr;
  // What the daemon must have for it (CONCERT_FEATURE_*), and what that is for.
  uint64_t features = 0;
  const char* needs = nullptr;
};

// Strides that were left 0 are set, as concert.h says. Checks what only the library can, as handles
// that were made before fork(); all else is the business of whoever takes the descriptor.
int Encode(const concert_gemm& op, EncodedOp* to, concert_error* error);
int Encode(const concert_copy& op, EncodedOp* to, concert_error* error);
int Encode(const concert_collective& op, EncodedOp* to, concert_error* error);

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_ENCODE_ENCODE_H_
