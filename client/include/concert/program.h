/* Programs: a whole step as one op. Part of concert.h. */
#include "concert/concert.h" /* as in ops.h */

#ifndef CONCERT_PROGRAM_H_
#define CONCERT_PROGRAM_H_

#ifdef __cplusplus
extern "C" {
#endif

/* Ops that are recorded and checked once and then run again and again, each time as one op with one
 * ticket, at the cost of one. Their operands are buffers of the session, which are the same in
 * every run, and slots of the program. Since 1.4. */
typedef struct concert_program concert_program;

#define CONCERT_BINDINGS_MAX 10 /* of a program */

/* Begins to record: every op that is submitted to `queue` becomes the program's next, and runs in
 * that order. Collectives and runs of programs cannot be part of one. Nothing is checked before
 * concert_program_end. Free the queue with concert_queue_destroy, before or after that. One thread
 * at a time. UNIMPLEMENTED: an older daemon, or a local session. */
CONCERT_API int concert_program_begin(concert_session* session, uint32_t gpu,
                                      concert_program** program, concert_queue** queue,
                                      concert_error* error);

/* A slot for what ops pass to one another: undefined when a run starts, and not for the program to
 * read before it has written it. Slots that are not in use together share memory. REQUIRES, of this
 * and the next: used in ops of this program only. */
CONCERT_API int concert_program_arena(concert_program* program, uint64_t bytes,
                                      concert_buffer** buffer, concert_error* error);
/* A slot for what is given with each run, as token ids, tables and results: copied in when the run
 * starts and, if the program writes to it, out when it ends. In the order of these calls. */
CONCERT_API int concert_program_binding(concert_program* program, uint64_t bytes,
                                        concert_buffer** buffer, concert_error* error);

#define CONCERT_ROW_COUNTS_MAX 8 /* of a program */

/* Lets runs have fewer rows than were recorded, as a server's batch has from step to step: `rows`
 * are `count` numbers, fewest first, of which the last is that of the ops, and
 * concert_program_end registers what was recorded for each. An op whose number of rows is another
 * (m of a GEMM, tokens of a prefill) is the same in all, and so are copies, of which the slots that
 * they read must be written for the fewest rows, too. Each number counts as a program, with ops and
 * an arena. INVALID_ARGUMENT: no ascending numbers from 1, or more than CONCERT_ROW_COUNTS_MAX.
 * Since 1.4. */
CONCERT_API int concert_program_rows(concert_program* program, const uint32_t* rows, uint32_t count,
                                     concert_error* error);

/* Registers what was recorded; from then on it can be run and not be changed. An error names the op
 * that is wrong, by its place, from 0, and why; what was recorded stays as it is.
 * RESOURCE_EXHAUSTED: the arena does not fit, the session has 256 programs, or the user's have more
 * ops than its quota. */
CONCERT_API int concert_program_end(concert_program* program, concert_error* error);

/* Runs that were submitted before still run. Buffers that the program uses may be freed at any
 * time: they live as long as it does. NULL is ignored. */
CONCERT_API void concert_program_free(concert_program* program);

typedef struct concert_run {
  uint32_t struct_size;
  uint32_t binding_count; /* as many as the program has */
  concert_program* program;
  const concert_slice* bindings;
  /* How many of the rows there are; 0: all. What runs is the program for the next number of
   * concert_program_rows that is as large: rows beyond `rows` and below that one are padding (a
   * slot of -1, a length of 0), and those beyond it are neither read nor written. Since 1.4. */
  uint32_t rows;
  uint32_t reserved; /* not read */
} concert_run;

/* One run, as any other op: on a queue of the program's GPU, ordered by queues and waits. Two runs
 * of one program share its arena, so order them. NOT_FOUND: the program is another session's or
 * freed. */
CONCERT_API int concert_submit_run(concert_queue* queue, const concert_run* run,
                                   const concert_submit_options* options, concert_ticket* ticket,
                                   concert_error* error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CONCERT_PROGRAM_H_ */
