// The body of a copy.
#ifndef CONCERT_PROTO_RING_OPS_COPY_H_
#define CONCERT_PROTO_RING_OPS_COPY_H_

#include "proto/ring/ops/operand.h"

struct concert_copy_body {
  struct concert_operand src, dst;
  uint64_t bytes;
  uint64_t reserved[19];
};

static_assert(sizeof(struct concert_copy_body) == 192, "ABI");
CONCERT_ABI_ASSERT(concert_copy_body, src, 0);
CONCERT_ABI_ASSERT(concert_copy_body, dst, 16);
CONCERT_ABI_ASSERT(concert_copy_body, bytes, 32);

#endif  // CONCERT_PROTO_RING_OPS_COPY_H_
