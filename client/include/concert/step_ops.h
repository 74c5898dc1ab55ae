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

/* scales[r] = max(|x[r,:]|) / 448 and out[r,c] = x[r,c] / scales[r], in fp32 and rounded once, to
 * fp8_e4m3: what a GEMM takes as a (or w) with a_scales (w_scales) and one scale per row. A scale is
 * at least 2^-126, also of zeros; a row with a NaN or an infinity becomes NaN, scale and all. out
 * and scales may share memory with nothing else. Since 1.4. */
typedef struct concert_quantize {
  uint32_t struct_size;
  uint32_t rows, columns, dtype; /* of x; dtype is not fp8 */
  concert_slice x, out, scales;  /* scales: rows numbers in fp32 */
  uint64_t x_stride, out_stride; /* of rows, in elements; 0: without gaps */
} concert_quantize;

/* As those in concert.h. */
CONCERT_API int concert_submit_advance(concert_queue* queue, const concert_advance* op,
                                       const concert_submit_options* options,
                                       concert_ticket* ticket, concert_error* error);
CONCERT_API int concert_submit_quantize(concert_queue* queue, const concert_quantize* op,
                                        const concert_submit_options* options,
                                        concert_ticket* ticket, concert_error* error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CONCERT_STEP_OPS_H_ */
