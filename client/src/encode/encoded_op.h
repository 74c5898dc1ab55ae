// What an application asks for, as the descriptor that carries it.
#ifndef CONCERT_CLIENT_SRC_ENCODE_ENCODED_OP_H_
#define CONCERT_CLIENT_SRC_ENCODE_ENCODED_OP_H_

#include <cstdint>

#include "concert/concert.h"
#include "proto/ring/ring_abi.h"

namespace concert::client {

struct EncodedOp {
  EncodedOp(const concert_queue& queue, concert_error* error) : queue(queue), error(error) {}

  const concert_queue& queue;  // that it is submitted to
  concert_error* const error;
  int refused = CONCERT_OK;  // otherwise `error` says why the op cannot be submitted
  // Kind and body; what stands in front of them is the queue's business.
  concert_descriptor descriptor{};
  // Of a collective: the queue fills in its number and the op's sequence.
  concert_communicator* communicator = nullptr;
  // What the daemon must have for it (CONCERT_FEATURE_*), and what that is for.
  uint64_t features = 0;
  const char* needs = nullptr;
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_ENCODE_ENCODED_OP_H_
