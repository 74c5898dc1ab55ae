// The body of an advance.
#ifndef CONCERT_PROTO_RING_OPS_ADVANCE_H_
#define CONCERT_PROTO_RING_OPS_ADVANCE_H_

#include "proto/ring/ops/operand.h"

/* counters[r] = min(counters[r] + 1, counter_max) for `rows` counters, in place: positions and lengths of sequences
 * that have got a token more. counter_max is what the caches hold, so that a counter never leaves them.
 *
 * Counters and slots are read when the op runs. A counter out of range, which is 0 to counter_max, is taken for the
 * nearest that is in range. Where there are slots, one below 0 means padding: the row's counter stays as it is. */
struct concert_advance_body {
  uint32_t rows, counter_max; /* counter_max: 1 to 2^31 - 1 */
  struct concert_operand counters, slots; /* slots may be none */
  uint8_t counter_dtype, slot_dtype;      /* int32 or int64; slot_dtype is ignored without slots */
  uint16_t reserved0;
  uint32_t reserved1;
  uint64_t reserved2[18];
};

static_assert(sizeof(struct concert_advance_body) == CONCERT_BODY_BYTES, "ABI");
CONCERT_ABI_ASSERT(concert_advance_body, rows, 0);
CONCERT_ABI_ASSERT(concert_advance_body, counter_max, 4);
CONCERT_ABI_ASSERT(concert_advance_body, counters, 8);
CONCERT_ABI_ASSERT(concert_advance_body, slots, 24);
CONCERT_ABI_ASSERT(concert_advance_body, counter_dtype, 40);
CONCERT_ABI_ASSERT(concert_advance_body, slot_dtype, 41);

#endif  // CONCERT_PROTO_RING_OPS_ADVANCE_H_
