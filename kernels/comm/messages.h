// Which bytes of every rank go where: the one description of a collective that all own transports
// follow.
#ifndef CONCERT_KERNELS_COMM_MESSAGES_H_
#define CONCERT_KERNELS_COMM_MESSAGES_H_

#include <algorithm>
#include <cstdint>

#include "kernels/op.h"
#include "policies/seam/transport.h"
#include "proto/ring/ring_abi.h"

namespace concert::kernels {

// A message is what one rank sends another, `bytes` long. That for rank p begins p * src_step
// behind the sender's src, that of rank r is due r * dst_step behind the receiver's dst or, where
// the kind reduces, is part of the sum that is due at dst.
struct Messages {
  uint64_t bytes = 0, src_step = 0, dst_step = 0;
  bool reduces = false;
  bool from_root = false;  // only the root sends
};

// REQUIRES: a collective, no barrier.
inline Messages MessagesOf(const Op& op) {
  const uint64_t bytes = op.collective.count * DtypeBytes(op.collective.dtype);
  switch (op.kind) {
    case CONCERT_OP_ALL_REDUCE:
      return {.bytes = bytes, .reduces = true};
    case CONCERT_OP_REDUCE_SCATTER:
      return {.bytes = bytes, .src_step = bytes, .reduces = true};
    case CONCERT_OP_ALL_GATHER:
      return {.bytes = bytes, .dst_step = bytes};
    case CONCERT_OP_ALL_TO_ALL:
      return {.bytes = bytes, .src_step = bytes, .dst_step = bytes};
    default:  // broadcast
      return {.bytes = bytes, .from_root = true};
  }
}

// Whether what rank `rank` keeps is due elsewhere than where it lies. REQUIRES: as MessagesOf.
inline bool CopiesToItself(const Op& op, uint64_t rank) {
  const Messages messages = MessagesOf(op);
  if (messages.reduces || (messages.from_root && rank != op.collective.root)) return false;
  return op.collective.src + rank * messages.src_step !=
         op.collective.dst + rank * messages.dst_step;
}

// What the blocks of one rank store where peer kernels carry it or, as it takes them as long, a
// share of what they load. REQUIRES: as MessagesOf.
inline uint64_t BlockBytes(const Op& op, uint64_t ranks) {
  const uint64_t bytes = MessagesOf(op).bytes;
  switch (op.kind) {
    case CONCERT_OP_ALL_REDUCE:
    case CONCERT_OP_BROADCAST:  // of its share, everywhere
      return bytes;
    case CONCERT_OP_REDUCE_SCATTER:
      return std::max(bytes, policies::StoresLike(bytes * ranks));
    case CONCERT_OP_ALL_TO_ALL:
      return bytes * ranks;
    default:
      return bytes * (ranks - 1);
  }
}

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_COMM_MESSAGES_H_
