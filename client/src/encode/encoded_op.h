// What an application asks for, as the descriptor that carries it.
#ifndef CONCERT_CLIENT_SRC_ENCODE_ENCODED_OP_H_
#define CONCERT_CLIENT_SRC_ENCODE_ENCODED_OP_H_

#include <cstdint>

#include "concert/concert.h"
#include "proto/ring/ring_abi.h"

namespace concert::client {

struct EncodedOp {
  // Kind and body; what stands in front of them is the queue's business.
  concert_descriptor descriptor{};
  // Of a collective: the queue fills in its number and the op's sequence.
  concert_communicator* communicator = nullptr;
  // Whose program it runs; null: it is no run.
  const concert_session* session = nullptr;
  // What the daemon must have for it (CONCERT_FEATURE_*), and what that is for.
  uint64_t features = 0;
  const char* needs = nullptr;
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_ENCODE_ENCODED_OP_H_
