// The body of a collective: one rank's part.
#ifndef CONCERT_PROTO_RING_OPS_COLLECTIVE_H_
#define CONCERT_PROTO_RING_OPS_COLLECTIVE_H_

#include "proto/ring/ops/operand.h"

enum concert_reduction_abi {
  CONCERT_ABI_SUM = 0,
  CONCERT_ABI_MAX = 1,
  CONCERT_ABI_MIN = 2,
};

/* `count` elements: all_reduce and broadcast: of src and of dst; all_gather: of src (dst holds ranks * count);
 * reduce_scatter: of dst (src holds ranks * count); all_to_all: per peer (both hold ranks * count);
 * barrier: 0. src and dst may be the same range where NCCL allows in-place use. */
struct concert_collective_body {
  uint32_t communicator;
  uint32_t root;     /* broadcast only */
  uint64_t sequence; /* this rank's op number in the communicator, from 0 */
  uint64_t count;
  struct concert_operand src, dst;
  uint8_t dtype;
  uint8_t reduction;
  uint8_t reserved0[6];
  uint64_t reserved1[16];
};

static_assert(sizeof(struct concert_collective_body) == 192, "ABI");
CONCERT_ABI_ASSERT(concert_collective_body, communicator, 0);
CONCERT_ABI_ASSERT(concert_collective_body, root, 4);
CONCERT_ABI_ASSERT(concert_collective_body, sequence, 8);
CONCERT_ABI_ASSERT(concert_collective_body, count, 16);
CONCERT_ABI_ASSERT(concert_collective_body, src, 24);
CONCERT_ABI_ASSERT(concert_collective_body, dst, 40);
CONCERT_ABI_ASSERT(concert_collective_body, dtype, 56);
CONCERT_ABI_ASSERT(concert_collective_body, reduction, 57);

#endif  // CONCERT_PROTO_RING_OPS_COLLECTIVE_H_
