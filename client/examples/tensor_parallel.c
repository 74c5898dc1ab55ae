/* A layer whose weights are spread over two processes, in C: each multiplies by its part, and an
 * all-reduce adds the parts up. Run it twice: tensor_parallel 0 & tensor_parallel 1 */
#include <concert/concert.h>
#include <stdio.h>
#include <stdlib.h>

enum { kRanks = 2, kRows = 4, kOutputs = 8, kInputs = 64 /* of each rank */ };

static concert_error error;

static void check(int code) {
  if (code == CONCERT_OK) return;
  fprintf(stderr, "%s: %s\n", concert_code_name(code), error.message);
  exit(1);
}

/* A matrix of `count` equal numbers. */
static concert_buffer* matrix(concert_session* session, uint32_t count, float value) {
  concert_buffer* buffer = NULL;
  check(concert_buffer_allocate(session, 0, count * sizeof(float), &buffer, &error));
  for (uint32_t i = 0; i < count; ++i) {
    check(concert_buffer_write(buffer, i * sizeof(float), &value, sizeof(float), &error));
  }
  return buffer;
}

int main(int argc, char** argv) {
  const uint32_t rank = argc > 1 ? (uint32_t)atoi(argv[1]) : 0;
  concert_session* session = NULL;
  concert_queue* queue = NULL;
  check(concert_connect(NULL, &session, &error));
  check(concert_queue_create(session, 0, CONCERT_PRIORITY_NORMAL, &queue, &error));

  concert_join join = CONCERT_INIT(join);
  join.name = "tutorial";
  join.rank = rank, join.ranks = kRanks;
  concert_communicator* group = NULL;
  check(concert_communicator_join(session, &join, &group, &error));

  concert_buffer* x = matrix(session, kRows * kInputs, 1);
  concert_buffer* w = matrix(session, kOutputs * kInputs, (float)rank + 1);
  concert_buffer* y = matrix(session, kRows * kOutputs, 0);

  concert_gemm gemm = CONCERT_GEMM_INIT;
  gemm.m = kRows, gemm.n = kOutputs, gemm.k = kInputs;
  gemm.a.buffer = x, gemm.w.buffer = w, gemm.d.buffer = y;
  gemm.dtype = CONCERT_FP32;
  concert_ticket multiplied;
  check(concert_submit_gemm(queue, &gemm, NULL, &multiplied, &error));

  /* Behind the GEMM, since it is on the same queue; in place. */
  concert_collective sum = CONCERT_INIT(sum);
  sum.kind = CONCERT_ALL_REDUCE;
  sum.communicator = group;
  sum.src.buffer = sum.dst.buffer = y;
  sum.count = kRows * kOutputs;
  sum.dtype = CONCERT_FP32;
  concert_ticket done;
  check(concert_submit_collective(queue, &sum, NULL, &done, &error));
  /* Each op has its own outcome: the all-reduce adds up whatever the GEMM has left. */
  check(concert_wait(session, multiplied, -1, &error));
  check(concert_wait(session, done, -1, &error));

  float result = 0;
  check(concert_buffer_read(y, 0, &result, sizeof(result), &error));
  printf("rank %u: y[0] = %g\n", rank, result); /* 64 * 1 + 64 * 2 = 192 */

  concert_communicator_leave(group);
  concert_session_close(session);
  return 0;
}
