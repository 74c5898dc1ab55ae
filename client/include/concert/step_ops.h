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
 * fp8_e4m3: what a GEMM takes as a (or w) with a_scales (w_scales) and one scale per row. A scale
 * is at least 2^-126, also of zeros; a row with a NaN or an infinity becomes NaN, scale and all.
 * out and scales may share memory with nothing else. Since 1.4. */
typedef struct concert_quantize {
  uint32_t struct_size;
  uint32_t rows, columns, dtype; /* of x; dtype is not fp8 */
  concert_slice x, out, scales;  /* scales: rows numbers in fp32 */
  uint64_t x_stride, out_stride; /* of rows, in elements; 0: without gaps */
} concert_quantize;

/* indices[r] = a column of row r, drawn at random by softmax(x[r,:] / temperature) from the top_k
 * largest (0: all), and of these from the fewest largest whose probabilities reach top_p (0 or 1:
 * all); what equals the least of them may be drawn, too. With a temperature of 0 it is what an
 * argmax gives, and so it is where the largest logit is not finite.
 *
 * The same seed, row and step, which steps hold (none: 0), draw the same of the same logits. Rows
 * may have temperatures (fp32), top_ks (int32), top_ps (fp32) and seeds (int64) of their own, in
 * place of the op's; a row with a seed of its own draws the same wherever in a batch it stands.
 * What is in these is read when the op runs, and any number is good. Since 1.4. */
typedef struct concert_sample {
  uint32_t struct_size;
  uint32_t rows, columns;                  /* of x; columns: up to 2^18 */
  uint32_t dtype, index_dtype, step_dtype; /* of x, not fp8; of indices and steps: int32 or int64 */
  float temperature, top_p;
  uint32_t top_k;
  uint64_t seed;
  concert_slice x, indices;
  concert_slice temperatures, top_ks, top_ps, seeds, steps; /* may be none */
  uint64_t x_stride; /* of rows, in elements; 0: without gaps */
} concert_sample;

/* As those in concert.h. */
CONCERT_API int concert_submit_advance(concert_queue* queue, const concert_advance* op,
                                       const concert_submit_options* options,
                                       concert_ticket* ticket, concert_error* error);
CONCERT_API int concert_submit_quantize(concert_queue* queue, const concert_quantize* op,
                                        const concert_submit_options* options,
                                        concert_ticket* ticket, concert_error* error);
CONCERT_API int concert_submit_sample(concert_queue* queue, const concert_sample* op,
                                      const concert_submit_options* options, concert_ticket* ticket,
                                      concert_error* error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CONCERT_STEP_OPS_H_ */
