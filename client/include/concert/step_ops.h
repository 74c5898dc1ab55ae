/* Ops that end a step of decoding or stand between its GEMMs, beside those in concert.h, which
 * includes this header; what it says of ops holds for them, too. */
#ifndef CONCERT_STEP_OPS_H_
#define CONCERT_STEP_OPS_H_

#include <concert/concert.h>

#ifdef __cplusplus
extern "C" {
#endif

/* counters[r] = min(counters[r] + 1, counter_max), in place: positions or lengths of sequences that
 * have got a token more. A counter that was out of range, which is 0 to counter_max, is taken for
 * the nearest in range first. Where there are slots, the counter of a row whose slot is below 0
 * stays as it is. Since 1.4. */
typedef struct concert_advance {
  uint32_t struct_size;
  uint32_t rows;
  uint32_t counter_max;               /* 1 to 2^31 - 1 */
  uint32_t counter_dtype, slot_dtype; /* int32 or int64 */
  concert_slice counters, slots;      /* slots may be none */
} concert_advance;

/* As those in concert.h. */
CONCERT_API int concert_submit_advance(concert_queue* queue, const concert_advance* op,
                                       const concert_submit_options* options,
                                       concert_ticket* ticket, concert_error* error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CONCERT_STEP_OPS_H_ */
