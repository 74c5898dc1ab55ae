// The body of sampling.
#ifndef CONCERT_PROTO_RING_OPS_SAMPLE_H_
#define CONCERT_PROTO_RING_OPS_SAMPLE_H_

#include "proto/ring/ops/operand.h"

/* indices[r] = a column of row r of x, drawn at random by softmax(x[r,:] / temperature), for `rows` rows of `columns`
 * logits. The row stride is in elements.
 *
 * What may be drawn: the top_k largest (0 or too many: all), and of these the fewest largest whose probabilities, of 1
 * in all of them, reach top_p (not between 0 and 1: all). What equals the least of those may be drawn, too. A
 * temperature that is not above 1e-6 gives what an argmax gives: of equals the first; and so does any where the
 * largest is not finite. Columns less probable than the largest by 2^-44 are not drawn.
 *
 * Random numbers are Philox4x32-10's (Salmon et al., Parallel random numbers: as easy as 1, 2, 3; SC'11) of the key
 * `seed` and the counter {step, row, 0}: steps[r], or 0 without steps, in the low half. So the same seed, step and row
 * draw the same of the same logits, whatever else runs. A row with a seed of its own counts as row 0, so that it draws
 * the same wherever in a batch it stands.
 *
 * Temperatures, top_ks, top_ps and seeds may be none; else they hold one for each row, in the place of the body's. They
 * and steps are read when the op runs, and any number is good. */
struct concert_sample_body {
  uint32_t rows, columns; /* columns: up to 2^18 */
  struct concert_operand x, indices;
  struct concert_operand temperatures, top_ks, top_ps, seeds, steps; /* fp32, int32, fp32, int64, step_dtype */
  uint64_t x_stride;
  uint64_t seed;
  float temperature, top_p;
  uint32_t top_k;
  uint8_t dtype;       /* of x; never fp8 */
  uint8_t index_dtype; /* of indices: int32 or int64 */
  uint8_t step_dtype;  /* of steps: int32 or int64; ignored without steps */
  uint8_t reserved0;
  uint64_t reserved1[5];
};

static_assert(sizeof(struct concert_sample_body) == CONCERT_BODY_BYTES, "ABI");
CONCERT_ABI_ASSERT(concert_sample_body, rows, 0);
CONCERT_ABI_ASSERT(concert_sample_body, columns, 4);
CONCERT_ABI_ASSERT(concert_sample_body, x, 8);
CONCERT_ABI_ASSERT(concert_sample_body, temperatures, 40);
CONCERT_ABI_ASSERT(concert_sample_body, steps, 104);
CONCERT_ABI_ASSERT(concert_sample_body, x_stride, 120);
CONCERT_ABI_ASSERT(concert_sample_body, seed, 128);
CONCERT_ABI_ASSERT(concert_sample_body, temperature, 136);
CONCERT_ABI_ASSERT(concert_sample_body, top_k, 144);
CONCERT_ABI_ASSERT(concert_sample_body, dtype, 148);
CONCERT_ABI_ASSERT(concert_sample_body, step_dtype, 150);

#endif  // CONCERT_PROTO_RING_OPS_SAMPLE_H_
