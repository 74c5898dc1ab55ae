/* The ops: a struct for each kind and the call that submits it. Part of concert.h. */
#include "concert/concert.h" /* which ends with this one: ahead of the guard, either may be first */

#ifndef CONCERT_OPS_H_
#define CONCERT_OPS_H_

#ifdef __cplusplus
extern "C" {
#endif

typedef enum concert_dtype {
  CONCERT_BF16 = 1,
  CONCERT_FP16 = 2,
  CONCERT_FP32 = 3,
  CONCERT_FP8_E4M3 = 4, /* OCP e4m3 (CUDA's e4m3fn): A and W of a GEMM, and caches */
  CONCERT_INT32 = 5,    /* indices: token ids, positions, slots */
  CONCERT_INT64 = 6
} concert_dtype;

typedef enum concert_activation {
  CONCERT_ACTIVATION_NONE = 0,
  CONCERT_ACTIVATION_RELU = 1,
  CONCERT_ACTIVATION_GELU = 2, /* tanh approximation */
  CONCERT_ACTIVATION_SILU = 3
} concert_activation;

typedef enum concert_reduction {
  CONCERT_REDUCTION_SUM = 0,
  CONCERT_REDUCTION_MAX = 1,
  CONCERT_REDUCTION_MIN = 2
} concert_reduction;

/* What every op may carry. May be NULL. An op waits for all earlier ops of its own queue by itself.
 * Its buffers and its communicator are of the queue's session: INVALID_ARGUMENT otherwise. */
typedef struct concert_submit_options {
  uint32_t struct_size;
  uint32_t wait_count; /* at most CONCERT_WAITS_MAX */
  const concert_ticket*
      waits;            /* tickets of any queue, session (of the same user) or user timeline */
  uint64_t deadline_ns; /* a hint, on CLOCK_MONOTONIC; 0: none */
} concert_submit_options;

#define CONCERT_WAITS_MAX 4
#define CONCERT_STRIDE_SHARED UINT64_MAX /* every batch member uses the same matrix */
#define CONCERT_GEMM_TF32 (1u << 0)      /* flag: fp32 operands may be rounded to tf32 */
/* Flags: m scales of A, n scales of W, instead of one. Other dtypes than fp8 may have the first. */
#define CONCERT_GEMM_A_SCALES_PER_ROW (1u << 1)
#define CONCERT_GEMM_W_SCALES_PER_ROW (1u << 2)
/* Flag: C is a residual: D = act(alpha * A * W^T + bias) + beta * C. UNIMPLEMENTED from a daemon
 * that is older than this. */
#define CONCERT_GEMM_RESIDUAL (1u << 3)
/* Flags: D[m,n/2] = act(gate) * up of the halves of the product's rows, alpha * A * W^T + bias, or
 * of its columns by turns: as a concert_gated_activation of it. UNIMPLEMENTED as above. */
#define CONCERT_GEMM_GATED (1u << 4)
#define CONCERT_GEMM_GATE_INTERLEAVED (1u << 5)

/* D[m,n] = act(alpha * A[m,k] * W[n,k]^T + beta * C[m,n] + bias[n]), `batch` times. All matrices
 * are row-major.
 *
 * alpha, beta and scales may be any float: NaN and infinities go into the result as IEEE 754 says.
 * alpha = 0 means 0, as in BLAS: with a beta D is act(beta * C + bias), also where alpha was
 * forgotten. alpha = beta = 0, what a struct of zeroes says, is INVALID_ARGUMENT: start from
 * CONCERT_GEMM_INIT. With beta = 0 C is not read, and CONCERT_GEMM_RESIDUAL is INVALID_ARGUMENT. C
 * may be D, with the same strides. A gated product has an even n, an activation that is silu or
 * gelu, and no C: beta = 0.
 *
 * fp8: the product of A and W is multiplied by a_scales[m] * w_scales[n]: fp32 numbers in memory
 * that the GPU reads when the GEMM runs, at multiples of 4 bytes, the same for the whole batch.
 * UNIMPLEMENTED from a daemon that is older than fp8. Other dtypes may have a_scales, too, with
 * CONCERT_GEMM_A_SCALES_PER_ROW; UNIMPLEMENTED from a daemon that is older than that. */
typedef struct concert_gemm {
  uint32_t struct_size;
  uint32_t m, n, k;
  uint32_t batch;                 /* 0: 1 */
  uint32_t dtype;                 /* of A and W */
  uint32_t activation;            /* concert_activation */
  uint32_t flags;                 /* CONCERT_GEMM_* */
  concert_slice a, w, c, d, bias; /* c (unless beta is not 0) and bias may be none */
  uint64_t lda, ldw, ldc, ldd;    /* row strides in elements; 0: rows without gaps (k, k, n, n; of a
                                     gated D n / 2) */
  uint64_t stride_a, stride_w, stride_c,
      stride_d; /* between batch members, elements; 0: without gaps */
  float alpha, beta;
  concert_slice a_scales, w_scales; /* fp8; a_scales per row of any dtype; none: 1 */
  uint32_t d_dtype;                 /* of C, D and bias. fp8: bf16 or fp16; else 0 or dtype */
} concert_gemm;

/* For C: `concert_gemm gemm = CONCERT_GEMM_INIT;` sets the defaults: alpha is 1, all else zero. */
#define CONCERT_GEMM_INIT \
  { .struct_size = (uint32_t)sizeof(concert_gemm), .alpha = 1 }

typedef enum concert_collective_kind {
  CONCERT_ALL_REDUCE = 3,
  CONCERT_ALL_GATHER = 4,
  CONCERT_REDUCE_SCATTER = 5,
  CONCERT_ALL_TO_ALL = 6,
  CONCERT_BROADCAST = 7,
  CONCERT_BARRIER = 8
} concert_collective_kind;

/* `count` elements: all_reduce and broadcast: of src and of dst; all_gather: of src (dst holds
 * ranks * count); reduce_scatter: of dst (src holds ranks * count); all_to_all: per peer (both hold
 * ranks * count); barrier: 0. src and dst may be the same range, but not of all_to_all; src of an
 * all_gather may be the rank's own part of dst, dst of a reduce_scatter that of src. Ranks match
 * their collectives by the order in which they submit them to the communicator; a disagreement is
 * an error for every rank. */
typedef struct concert_collective {
  uint32_t struct_size;
  uint32_t kind; /* concert_collective_kind */
  concert_communicator* communicator;
  concert_slice src, dst;
  uint64_t count;
  uint32_t dtype;
  uint32_t reduction; /* all_reduce, reduce_scatter */
  uint32_t root;      /* broadcast */
} concert_collective;

typedef struct concert_copy {
  uint32_t struct_size;
  concert_slice src, dst;
  uint64_t bytes;
} concert_copy;

/* Flag: the normalised row is rounded to the dtype before it is multiplied by the weight. */
#define CONCERT_RMS_NORM_CAST_FIRST (1u << 0)

/* out[r,c] = weight[c] * x[r,c] / sqrt(mean(x[r,:]^2) + epsilon), each row computed in fp32. With a
 * residual, residual = x + residual first, rounded and written back, and that is what is
 * normalised. All operands have the dtype, which is not fp8. out may be x; else nothing that is
 * written may share memory with another operand. epsilon may be any float. Since 1.2. */
typedef struct concert_rms_norm {
  uint32_t struct_size;
  uint32_t rows, columns;
  uint32_t dtype;
  uint32_t flags; /* CONCERT_RMS_NORM_* */
  float epsilon;
  concert_slice x, residual, weight, out; /* residual may be none; weight: `columns` elements */
  uint64_t x_stride, residual_stride, out_stride; /* of rows, in elements; 0: without gaps */
} concert_rms_norm;

/* Flag: gate and up alternate in a row of x; else all of gate comes first. */
#define CONCERT_GATED_INTERLEAVED (1u << 0)

/* out[r,c] = act(gate[r,c]) * up[r,c], computed in fp32 and rounded once. A row of x holds
 * `columns` elements of gate and as many of up. The dtype is not fp8. Since 1.2. */
typedef struct concert_gated_activation {
  uint32_t struct_size;
  uint32_t rows, columns; /* of out */
  uint32_t dtype;
  uint32_t activation; /* concert_activation: silu or gelu */
  uint32_t flags;      /* CONCERT_GATED_* */
  concert_slice x, out;
  uint64_t x_stride, out_stride; /* of rows, in elements; 0: without gaps */
} concert_gated_activation;

/* Indices of the ops below are read when the op runs, from memory that may change at any time: what
 * is out of range then is taken for the nearest that is in range. */

/* out[r,:] = table[ids[r],:]; a row of zeros where the id is below 0. The dtype is not fp8. out may
 * share memory with nothing else. Since 1.3. */
typedef struct concert_embedding {
  uint32_t struct_size;
  uint32_t rows, columns, vocabulary; /* of out; rows of the table */
  uint32_t dtype, index_dtype;        /* of table and out; of ids: int32 or int64 */
  concert_slice ids, table, out;
  uint64_t table_stride, out_stride; /* of rows, in elements; 0: without gaps */
} concert_embedding;

/* indices[r] = where x[r,:] is largest, of equals the first; NaN is larger than everything. The
 * dtype is not fp8. Since 1.3. */
typedef struct concert_argmax {
  uint32_t struct_size;
  uint32_t rows, columns;      /* of x */
  uint32_t dtype, index_dtype; /* of x; of indices: int32 or int64 */
  concert_slice x, indices;
  uint64_t x_stride; /* of rows, in elements; 0: without gaps */
} concert_argmax;

/* Keys and values of a layer: `pages` pages of `page_size` tokens, each of as many heads as the op
 * says. Without paging a page is one sequence. Strides are in elements, the same for k and v; 0: as
 * if heads lay side by side in a token, tokens in a page and pages in the cache, without gaps.
 *
 * A cache has the dtype of its op (cache_dtype 0) or is in fp8_e4m3 (since 1.4). Then what it holds
 * is meant times a scale, one for k and one for v, which every op on it is given: finite and at
 * least 2^-126; 0: 1. Of another cache they are 0 or 1. */
typedef struct concert_kv_cache {
  concert_slice k, v;
  uint64_t page_stride;
  uint32_t pages, page_size;
  uint32_t token_stride, head_stride;
} concert_kv_cache;

/* Flag: elements 2i and 2i + 1 of a head are rotated together; else i and i + rotary_dim / 2. */
#define CONCERT_ROPE_INTERLEAVED (1u << 0)

/* For each of `rows` tokens: rotates the heads of q, in place, and those of k by the token's
 * position, then writes k and v to the token's slot of the cache: page slot / page_size, token slot
 * % page_size. A row of cos_sin, one for each position, holds rotary_dim / 2 cosines and then as
 * many sines in fp32. A row whose slot is below 0 is padding: the cache gets nothing of it. The
 * dtype is not fp8; a cache that is gets k and v times the reciprocals of its scales, rounded once,
 * and 448 for what is beyond it. q, k and v may be parts of one matrix. Since 1.3. */
typedef struct concert_rope_append {
  uint32_t struct_size;
  uint32_t rows, positions_max; /* positions_max: rows of cos_sin */
  uint32_t q_heads, kv_heads, head_dim;
  uint32_t rotary_dim; /* 0: head_dim. What of a head is rotated, from its begin */
  uint32_t dtype, position_dtype, slot_dtype; /* of q, k and v; int32 or int64 */
  uint32_t flags;                             /* CONCERT_ROPE_* */
  concert_slice q, k, v, positions, slots, cos_sin;
  concert_kv_cache cache;
  uint32_t q_stride, k_stride, v_stride; /* of rows, in elements; 0: without gaps */
  uint32_t reserved;                     /* not read: older programs have padding here */
  uint32_t cache_dtype;                  /* 0, dtype or fp8_e4m3 */
  float k_scale, v_scale;                /* of a cache in fp8_e4m3; 0: 1 */
} concert_rope_append;

/* out[r,c] = weight[c] * (x[r,c] - mean) / sqrt(variance + epsilon) + bias[c], mean and variance
 * row r's, in fp32 and rounded once. Residual, dtype and out: as in concert_rms_norm. Since 1.3. */
typedef struct concert_layer_norm {
  uint32_t struct_size;
  uint32_t rows, columns, dtype;
  float epsilon;
  concert_slice x, residual, weight, bias, out;   /* residual and bias may be none */
  uint64_t x_stride, residual_stride, out_stride; /* of rows, in elements; 0: without gaps */
} concert_layer_norm;

typedef enum concert_elementwise_function {
  CONCERT_ADD = 1,
  CONCERT_MULTIPLY = 2,
  CONCERT_CAST = 3 /* of x alone */
} concert_elementwise_function;

/* out[r,c] = x[r,c] + y[r,c], x[r,c] * y[r,c] or x[r,c], in fp32 and rounded once. y may be one row
 * for all. No dtype is fp8. out may be x or y where it has the same rows; else it may share memory
 * with neither. Since 1.3. */
typedef struct concert_elementwise {
  uint32_t struct_size;
  uint32_t function; /* concert_elementwise_function */
  uint32_t rows, columns;
  uint32_t dtype, out_dtype; /* of x and y; of out, 0: dtype */
  concert_slice x, y, out;
  /* Of rows, in elements; 0: without gaps. y_stride CONCERT_STRIDE_SHARED: one row for all. */
  uint64_t x_stride, y_stride, out_stride;
} concert_elementwise;

/* For each of `rows` sequences and each head h of q: out = softmax(cap(scale * q * K^T)) * V over
 * the last `window` (0: all) of the sequence's lengths[r] tokens in the cache, K and V being those
 * of head h / (q_heads / kv_heads); cap(s) is soft_cap * tanh(s / soft_cap), with soft_cap 0 s. Of
 * length 0: a row of zeros. Token t of sequence r is token t % page_size of page
 * page_table[r][t / page_size], or, without a table, token t of page r. All but table and lengths
 * (int32) are bf16, and the cache may be fp8_e4m3; q and the cache begin at multiples of 16 bytes
 * and have strides of multiples of as many. out may share memory with nothing else. Since 1.3. */
typedef struct concert_attention_decode {
  uint32_t struct_size;
  uint32_t rows;
  uint32_t q_heads, kv_heads, head_dim; /* at most 8 of q to one of kv; 64, 128 or 256 */
  uint32_t length_max; /* what longer lengths are taken for, and what the op may cost */
  uint32_t window, dtype;
  float scale, soft_cap;                     /* scale: usually 1 / sqrt(head_dim) */
  concert_slice q, page_table, lengths, out; /* page_table may be none */
  concert_kv_cache cache;
  uint32_t q_stride, out_stride; /* of rows, in elements; 0: without gaps */
  uint32_t table_stride;         /* of rows of the page table, in elements */
  uint32_t reserved;             /* not read: older programs have padding here */
  uint32_t cache_dtype;          /* 0, dtype or fp8_e4m3 */
  float k_scale, v_scale;        /* of a cache in fp8_e4m3; 0: 1 */
} concert_attention_decode;

/* As concert_attention_decode, of a chunk of new tokens of each of `sequences` sequences: row i of
 * a chunk of n attends to the first lengths[s] - n + i + 1 tokens of sequence s, of these to the
 * last `window`. So the chunk is in the cache already and lengths count it. q and out have `tokens`
 * rows; rows query_starts[s] to query_starts[s + 1] - 1 are the chunk of s, and rows of no chunk
 * stay as they are. query_starts: sequences + 1 numbers in int32. out, too, begins at a multiple of
 * 16 bytes, and rows of it at multiples of 8 elements. A token whose v is NaN or infinite may make
 * NaN of rows, too, that do not attend to it while neighbours of theirs in the chunk do. Since 1.4.
 */
typedef struct concert_attention_prefill {
  uint32_t struct_size;
  uint32_t tokens, sequences;
  uint32_t q_heads, kv_heads, head_dim; /* at most 8 of q to one of kv; 64, 128 or 256 */
  uint32_t length_max; /* what longer lengths are taken for, and what the op may cost */
  uint32_t window, dtype;
  float scale, soft_cap;                                   /* scale: usually 1 / sqrt(head_dim) */
  concert_slice q, query_starts, page_table, lengths, out; /* page_table may be none */
  concert_kv_cache cache;
  uint32_t q_stride, out_stride; /* of rows, in elements; 0: without gaps */
  uint32_t table_stride;         /* of rows of the page table, in elements */
  uint32_t reserved;             /* not read: older programs have padding here */
  uint32_t cache_dtype;          /* 0, dtype or fp8_e4m3 */
  float k_scale, v_scale;        /* of a cache in fp8_e4m3; 0: 1 */
} concert_attention_prefill;

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

/* Each hands one op to the queue and returns at once; `ticket` (may be NULL) is reached when the op
 * is done. RESOURCE_EXHAUSTED: the ring stayed full for submit_timeout_ns. UNAVAILABLE: the session
 * has ended. A failed submit leaves no trace: nothing was handed over. `options` may be NULL. */
CONCERT_API int concert_submit_gemm(concert_queue* queue, const concert_gemm* op,
                                    const concert_submit_options* options, concert_ticket* ticket,
                                    concert_error* error);
CONCERT_API int concert_submit_collective(concert_queue* queue, const concert_collective* op,
                                          const concert_submit_options* options,
                                          concert_ticket* ticket, concert_error* error);
CONCERT_API int concert_submit_copy(concert_queue* queue, const concert_copy* op,
                                    const concert_submit_options* options, concert_ticket* ticket,
                                    concert_error* error);
CONCERT_API int concert_submit_rms_norm(concert_queue* queue, const concert_rms_norm* op,
                                        const concert_submit_options* options,
                                        concert_ticket* ticket, concert_error* error);
CONCERT_API int concert_submit_gated_activation(concert_queue* queue,
                                                const concert_gated_activation* op,
                                                const concert_submit_options* options,
                                                concert_ticket* ticket, concert_error* error);
CONCERT_API int concert_submit_embedding(concert_queue* queue, const concert_embedding* op,
                                         const concert_submit_options* options,
                                         concert_ticket* ticket, concert_error* error);
CONCERT_API int concert_submit_argmax(concert_queue* queue, const concert_argmax* op,
                                      const concert_submit_options* options, concert_ticket* ticket,
                                      concert_error* error);
CONCERT_API int concert_submit_rope_append(concert_queue* queue, const concert_rope_append* op,
                                           const concert_submit_options* options,
                                           concert_ticket* ticket, concert_error* error);
CONCERT_API int concert_submit_attention_decode(concert_queue* queue,
                                                const concert_attention_decode* op,
                                                const concert_submit_options* options,
                                                concert_ticket* ticket, concert_error* error);
CONCERT_API int concert_submit_attention_prefill(concert_queue* queue,
                                                 const concert_attention_prefill* op,
                                                 const concert_submit_options* options,
                                                 concert_ticket* ticket, concert_error* error);
CONCERT_API int concert_submit_layer_norm(concert_queue* queue, const concert_layer_norm* op,
                                          const concert_submit_options* options,
                                          concert_ticket* ticket, concert_error* error);
CONCERT_API int concert_submit_elementwise(concert_queue* queue, const concert_elementwise* op,
                                           const concert_submit_options* options,
                                           concert_ticket* ticket, concert_error* error);
CONCERT_API int concert_submit_advance(concert_queue* queue, const concert_advance* op,
                                       const concert_submit_options* options,
                                       concert_ticket* ticket, concert_error* error);
CONCERT_API int concert_submit_quantize(concert_queue* queue, const concert_quantize* op,
                                        const concert_submit_options* options,
                                        concert_ticket* ticket, concert_error* error);
CONCERT_API int concert_submit_sample(concert_queue* queue, const concert_sample* op,
                                      const concert_submit_options* options, concert_ticket* ticket,
                                      concert_error* error);

/* Between begin and end, ops submitted to any queue of `gpu` are collected and then handed over
 * together, so that the daemon sees them at once. Calls nest: the outermost end hands over. Waiting
 * for or polling a ticket, a full ring, freeing a queue, buffer or program, sealing a buffer and
 * leaving a communicator hand over early, so a batch never blocks its own progress and has what it
 * was submitted with.
 *
 * A batch of at least 4 ops of one queue, of which at most the first waits and none has a deadline,
 * is recognised when it comes again: the same ops, byte by byte, in the same order. From about the
 * fifth time on it is one run of a program (program.h) that the library has registered for it,
 * which takes the daemon one op's time. All is as before: tickets, results but for the rounding of
 * other kernels, buffers that may be freed or sealed. What differs: all tickets of the batch are
 * reached together, and if the run fails, all of its ops have its outcome. The daemon shows it as
 * one op. Collectives and runs stay single ops, as does whatever the daemon does not take as a
 * program, and chains that are better carried together with other queues' ops while those are at
 * work. concert_connect_options.batches turns it off. */
CONCERT_API int concert_batch_begin(concert_session* session, uint32_t gpu, concert_error* error);
CONCERT_API int concert_batch_end(concert_session* session, uint32_t gpu, concert_error* error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CONCERT_OPS_H_ */
