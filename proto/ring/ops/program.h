// The body of a run: a program's ops, in their order, as one op.
#ifndef CONCERT_PROTO_RING_OPS_PROGRAM_H_
#define CONCERT_PROTO_RING_OPS_PROGRAM_H_

#include "proto/ring/ops/operand.h"

enum {
  CONCERT_MAX_BINDINGS = 10, /* of a program */
};

struct concert_program_body {
  uint32_t program; /* concert_program_reply.program */
  uint32_t binding_count; /* of the program */
  /* So many tickets before the op's own are reached with it and have its outcome: of ops that the run stands for.
   * Its ticket is then the queue's previous one + 1 + covered. Below CONCERT_MAX_PROGRAM_OPS. */
  uint32_t covered;
  uint32_t reserved0;
  /* In the order of the program's binding slots; as many bytes as the slot says are used. */
  struct concert_operand bindings[CONCERT_MAX_BINDINGS];
  uint64_t reserved1[2];
};

static_assert(sizeof(struct concert_program_body) == 192, "ABI");
CONCERT_ABI_ASSERT(concert_program_body, binding_count, 4);
CONCERT_ABI_ASSERT(concert_program_body, covered, 8);
CONCERT_ABI_ASSERT(concert_program_body, bindings, 16);

#endif  // CONCERT_PROTO_RING_OPS_PROGRAM_H_
