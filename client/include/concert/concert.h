/* libconcert: hand GEMMs and collectives to concertd, the service that schedules a node's GPUs. C99
 * and later.
 *
 * Five verbs: connect, register (buffers), submit (ops to queues), wait (for tickets), close.
 *
 * Errors. Every call that can fail returns a concert_code and takes a `concert_error*` last, which
 * may be NULL; when the call fails, it holds the code and a sentence that names the field and the
 * value. A call that succeeds leaves it alone. Nothing is global, nothing is thrown. Out parameters
 * are written on success only.
 *
 * Bad ops. The library checks only what protects itself; the daemon checks every op and reports a
 * bad one when the op is waited for: submit succeeds, concert_wait returns the op's code and its
 * sentence.
 *
 * Threads. Different threads may use different queues, buffers, communicators and timelines of one
 * session at the same time, and any thread may wait for any ticket. One queue belongs to one thread
 * at a time. Queues of one GPU share a ring: a submit holds the ring's lock while it copies one
 * descriptor. A handle may be freed when no call that was given it is running. Do not use a session
 * after fork().
 *
 * Lifetime. A handle keeps what it needs alive, so handles may be freed in any order, also after
 * concert_session_close. Ops that are submitted then, and calls that ask the daemon, fail with
 * CONCERT_UNAVAILABLE; buffers can still be written and read, and ops of a program recorded, though
 * not registered.
 *
 * Compatibility. `struct_size` comes first in every options struct and is set to sizeof(the struct)
 * by the caller (CONCERT_INIT does it); fields are only appended and zero is their default. A
 * library that is older than its caller refuses fields it does not know unless they are zero. Enums
 * are only appended to.
 */
#ifndef CONCERT_CONCERT_H_
#define CONCERT_CONCERT_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define CONCERT_API __attribute__((visibility("default")))
#else
#define CONCERT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* For C: `concert_gemm gemm = CONCERT_INIT(gemm);` zeroes everything but struct_size. For a
 * concert_gemm use CONCERT_GEMM_INIT. */
#define CONCERT_INIT(object) \
  { .struct_size = (uint32_t)sizeof(object) }

typedef struct concert_session concert_session; /* a connection to the daemon */
typedef struct concert_queue concert_queue;     /* an ordered line of ops on one GPU */
typedef struct concert_buffer concert_buffer;   /* a registered range of memory */
typedef struct concert_communicator
    concert_communicator; /* this rank's place in a group of ranks */
typedef struct concert_user_timeline
    concert_user_timeline; /* a counter that the client or its GPU raises */

/* Numbers follow the gRPC codes of the same meaning. */
typedef enum concert_code {
  CONCERT_OK = 0,
  CONCERT_CANCELLED = 1,           /* drained, or its session or communicator went away */
  CONCERT_INVALID_ARGUMENT = 3,    /* a bad field; the sentence names it */
  CONCERT_DEADLINE_EXCEEDED = 4,   /* a wait or a missing rank outlasted its bound */
  CONCERT_NOT_FOUND = 5,           /* an unknown or released handle */
  CONCERT_PERMISSION_DENIED = 7,   /* a handle of another uid */
  CONCERT_RESOURCE_EXHAUSTED = 8,  /* a quota, a full table or a full ring */
  CONCERT_FAILED_PRECONDITION = 9, /* right request, wrong state */
  CONCERT_UNIMPLEMENTED = 12,
  CONCERT_INTERNAL = 13,   /* the device failed */
  CONCERT_UNAVAILABLE = 14 /* draining, session closed, or no daemon */
} concert_code;

/* "INVALID_ARGUMENT"; "UNKNOWN" for a number that is none of them. */
CONCERT_API const char* concert_code_name(int code);

/* What went wrong. Its size never changes. */
typedef struct concert_error {
  int32_t code;      /* concert_code */
  char message[508]; /* always terminated, never empty after a failure */
} concert_error;

/* The library's version, "0.1.0". */
CONCERT_API const char* concert_version(void);

/* ---- Connect and close ---- */

typedef enum concert_fallback {
  CONCERT_FALLBACK_ENVIRONMENT =
      0,                      /* as $CONCERT_FALLBACK says: "cublas", or "none" as when unset */
  CONCERT_FALLBACK_NONE = 1,  /* no daemon is an error */
  CONCERT_FALLBACK_CUBLAS = 2 /* no daemon: compute GEMMs and copies here with cuBLASLt */
} concert_fallback;

typedef enum concert_batches {
  CONCERT_BATCHES_ENVIRONMENT =
      0,                        /* as $CONCERT_BATCHES says: "ops", or "programs" as when unset */
  CONCERT_BATCHES_PROGRAMS = 1, /* a batch that comes again and again becomes a program */
  CONCERT_BATCHES_OPS = 2       /* the ops of every batch are submitted one by one */
} concert_batches;

typedef struct concert_connect_options {
  uint32_t struct_size;
  uint32_t fallback;         /* concert_fallback */
  const char* socket_path;   /* NULL: $CONCERT_SOCKET, else /run/concert/concert.sock */
  const char* client_name;   /* shown to operators, at most 63 bytes; NULL: the program's name */
  uint64_t gpu_mask;         /* bit i: GPU i will be used; 0: all */
  int64_t timeout_ns;        /* bound of connecting and of every later control call, waiting for
                                those of other threads included; 0: 30 s */
  int64_t submit_timeout_ns; /* how long a submit waits while the ring is full; 0: 1 s; < 0: not at
                                all */
  uint32_t batches;          /* concert_batches; see concert_batch_begin. Since 1.4 */
  uint32_t reserved;         /* not read */
} concert_connect_options;

/* Connects and maps the session's memory. `options` may be NULL. Blocks at most timeout_ns.
 * UNAVAILABLE: no daemon answers (and no fallback); FAILED_PRECONDITION: the daemon speaks another
 * ABI major version. */
CONCERT_API int concert_connect(const concert_connect_options* options, concert_session** session,
                                concert_error* error);

/* Ends the session: queued ops are cancelled, what runs finishes. NULL is ignored. */
CONCERT_API void concert_session_close(concert_session* session);

/* The session's id at the daemon, never 0; the high half of its timelines' ids. 1 when local. Of
 * NULL this and the two below are 0. */
CONCERT_API uint32_t concert_session_id(const concert_session* session);

/* 1 when there was no daemon and the library computes by itself (CONCERT_FALLBACK=cublas), else 0.
 */
CONCERT_API int concert_session_is_local(const concert_session* session);

typedef enum concert_backend { CONCERT_BACKEND_SIM = 1, CONCERT_BACKEND_CUDA = 2 } concert_backend;

typedef struct concert_gpu {
  uint32_t struct_size;
  uint32_t backend; /* concert_backend */
  char name[64];
  uint8_t uuid[16];
  uint64_t memory_bytes;
  uint32_t sm_count;
  uint32_t has_ring; /* 1: it was in gpu_mask, so queues can be made on it */
} concert_gpu;

/* GPUs of this node as the daemon numbers them, from 0. */
CONCERT_API uint32_t concert_gpu_count(const concert_session* session);
/* Fills in as much of `gpu` as gpu->struct_size covers. */
CONCERT_API int concert_gpu_info_get(const concert_session* session, uint32_t index,
                                     concert_gpu* gpu, concert_error* error);

/* ---- Buffers ---- */

/* Memory made by the daemon: zeroed, and every GPU of the node may use it in ops. */
CONCERT_API int concert_buffer_allocate(concert_session* session, uint32_t gpu, uint64_t bytes,
                                        concert_buffer** buffer, concert_error* error);

typedef enum concert_memory {
  CONCERT_MEMORY_CUDA_IPC = 1, /* ipc_handle: from cuIpcGetMemHandle of a cuMemAlloc base pointer */
  CONCERT_MEMORY_CUDA_VMM = 2, /* fd: from cuMemExportToShareableHandle; stays the caller's */
  CONCERT_MEMORY_MEMFD = 3,    /* fd: a memfd with F_SEAL_SHRINK (sim); stays the caller's */
  CONCERT_MEMORY_CUDA_POINTER = 4 /* pointer: anywhere in a cuMemAlloc or cudaMalloc allocation */
} concert_memory;

/* The client's own memory. It stays the client's, must outlive the buffer, and only ops on queues
 * of `gpu` use it. For CUDA_POINTER, offset and allocation_bytes are found out and must be 0. */
typedef struct concert_import {
  uint32_t struct_size;
  uint32_t memory;           /* concert_memory */
  uint32_t gpu;              /* where it lies */
  int32_t fd;                /* CUDA_VMM, MEMFD */
  uint64_t pointer;          /* CUDA_POINTER */
  uint64_t offset;           /* of the buffer in the allocation */
  uint64_t bytes;            /* of the buffer */
  uint64_t allocation_bytes; /* of the whole allocation; 0: offset + bytes */
  uint8_t ipc_handle[64];    /* CUDA_IPC */
} concert_import;

CONCERT_API int concert_buffer_import(concert_session* session, const concert_import* options,
                                      concert_buffer** buffer, concert_error* error);

/* Of NULL: 0. */
CONCERT_API uint64_t concert_buffer_bytes(const concert_buffer* buffer);

/* Where this process sees the buffer; mapped when first asked for, unmapped when the buffer is
 * freed. sim: a host pointer. cuda: a device pointer of the GPU's primary context. CUDA_IPC:
 * FAILED_PRECONDITION (the exporting process has the address). */
CONCERT_API int concert_buffer_address(concert_buffer* buffer, void** address,
                                       concert_error* error);

/* Copies between the buffer and host memory, and blocks until it is done. Not ordered with ops:
 * wait for their tickets first. INVALID_ARGUMENT past the end. */
CONCERT_API int concert_buffer_write(concert_buffer* buffer, uint64_t offset, const void* data,
                                     uint64_t bytes, concert_error* error);
CONCERT_API int concert_buffer_read(concert_buffer* buffer, uint64_t offset, void* data,
                                    uint64_t bytes, concert_error* error);

/* For weights, once they are written: the buffer's bytes never change again, and the daemon keeps
 * equal ones of a user on a GPU in memory once, whichever session sealed them. It has the same
 * bytes and may be any operand that is only read; an op that would write it fails. It has no memory
 * in this process any more: its address is gone, and concert_buffer_address, _write and _read say
 * FAILED_PRECONDITION. Imported memory is its owner's again.
 *
 * Wait for the ops that write it first, and let nobody write it or use the handle meanwhile: which
 * bytes are sealed is undefined otherwise. While it is sealed there are two copies, so seal buffers
 * one by one. FAILED_PRECONDITION: it is sealed already, a registered program uses it, or it is the
 * pool's. RESOURCE_EXHAUSTED: there is no room for the copy. UNIMPLEMENTED: an older daemon, or a
 * local session. After these it is as it was. DEADLINE_EXCEEDED: it may be sealed or not, and can
 * only be freed. Since 1.4. */
CONCERT_API int concert_buffer_seal(concert_buffer* buffer, concert_error* error);

/* Unregisters it; ops already submitted may still use it. NULL is ignored. */
CONCERT_API void concert_buffer_free(concert_buffer* buffer);

/* From `offset` bytes in `buffer`; a NULL buffer means "none". */
typedef struct concert_slice {
  concert_buffer* buffer;
  uint64_t offset;
} concert_slice;

/* ---- Pool: daemon-made memory behind a framework's allocator ---- */

/* A framework's allocator calls functions that know no session, as PyTorch's CUDAPluggableAllocator
 * does, so that this alone is the process's and not a session's. Any thread may call these. */

/* Whose memory concert_pool_allocate takes from now on; NULL: nobody's. Keeps no session open. */
CONCERT_API int concert_pool_use(concert_session* session, concert_error* error);

/* A buffer of its own for `bytes`, as concert_buffer_allocate makes it, on this process's CUDA
 * device `device` (sim: on GPU `device`). Returns its concert_buffer_address; NULL, and a line on
 * stderr that says why, when there is none. `stream` is not used. */
CONCERT_API void* concert_pool_allocate(uint64_t bytes, int device, void* stream);
/* Waits for all work of this process on the GPU, as cudaFree does, and frees the buffer; ops
 * already submitted may still use it. NULL is ignored. */
CONCERT_API void concert_pool_free(void* address, uint64_t bytes, int device, void* stream);

/* Which buffer of the pool, and where in it, an address is. The buffer stays the pool's and lives
 * until concert_pool_free. NOT_FOUND: it is in none. FAILED_PRECONDITION: the buffer is of another
 * session than `session`. */
CONCERT_API int concert_pool_find(concert_session* session, const void* address,
                                  concert_slice* slice, concert_error* error);
/* How many buffers of the pool were freed so far. While it stays the same, what concert_pool_find
 * has told stays true. */
CONCERT_API uint64_t concert_pool_frees(void);

/* ---- Queues ---- */

typedef enum concert_priority {
  CONCERT_PRIORITY_LOW = -1,
  CONCERT_PRIORITY_NORMAL = 0,
  CONCERT_PRIORITY_HIGH = 1
} concert_priority;

CONCERT_API int concert_queue_create(concert_session* session, uint32_t gpu, int32_t priority,
                                     concert_queue** queue, concert_error* error);
/* Ops already submitted still run. NULL is ignored. */
CONCERT_API void concert_queue_destroy(concert_queue* queue);

/* A moment: the timeline `timeline` (an id, node-wide) has reached `value`. A submitted op's ticket
 * is reached when the op is done. Plain data: may be copied, kept, and sent to other processes of
 * the same user, whose ops may wait for it. timeline 0 is no moment at all; waits skip it. */
typedef struct concert_ticket {
  uint64_t timeline;
  uint64_t value;
} concert_ticket;

/* The moment when everything submitted to the queue so far is done. Of NULL: no moment. */
CONCERT_API concert_ticket concert_queue_last(const concert_queue* queue);

/* ---- Wait ---- */

/* These take tickets of the session's own queues and user timelines. For tickets of other sessions,
 * submit an op that waits for them. The library keeps the last 1024 failures of a session; asking
 * for the outcome of an op that failed longer ago gives FAILED_PRECONDITION, never OK. */

/* Never blocks. *done = 0: not yet, returns OK. *done = 1: nothing more to wait for; returns the
 * op's outcome, OK or its code and sentence, or UNAVAILABLE when the session ended first. *done is
 * 1 after every error. */
CONCERT_API int concert_poll(concert_session* session, concert_ticket ticket, int* done,
                             concert_error* error);

/* Blocks until the ticket is reached, at most timeout_ns (< 0: no limit), and returns the op's
 * outcome. DEADLINE_EXCEEDED may also be the op's own outcome; concert_poll tells which.
 * UNAVAILABLE: the session ended first, which is noticed within 100 ms. Spins some microseconds,
 * then sleeps in the kernel. */
CONCERT_API int concert_wait(concert_session* session, concert_ticket ticket, int64_t timeout_ns,
                             concert_error* error);

/* Makes later work of a CUDA stream (a CUstream or cudaStream_t) wait for the ticket; this thread
 * goes on. The stream learns only that the op ended: ask concert_poll for its outcome. Needs the
 * stream's context to be current. Keep the session open until the stream is past the wait; a daemon
 * that dies leaves the stream waiting. UNIMPLEMENTED: the GPU cannot wait on host memory, or the
 * session is on sim. */
CONCERT_API int concert_wait_on_stream(concert_session* session, concert_ticket ticket,
                                       void* stream, concert_error* error);

/* ---- User timelines: ops wait for the client ---- */

/* A counter that begins at 0. RESOURCE_EXHAUSTED when the session has as many as the daemon allows
 * (64). */
CONCERT_API int concert_user_timeline_create(concert_session* session,
                                             concert_user_timeline** timeline,
                                             concert_error* error);
/* REQUIRES: no submitted op and no stream still uses it. NULL is ignored. */
CONCERT_API void concert_user_timeline_destroy(concert_user_timeline* timeline);
/* The moment when the timeline reaches `value`. Of NULL: no moment. */
CONCERT_API concert_ticket concert_user_timeline_ticket(const concert_user_timeline* timeline,
                                                        uint64_t value);
/* Raises it to `value`, now; it never goes back. */
CONCERT_API int concert_user_timeline_signal(concert_user_timeline* timeline, uint64_t value,
                                             concert_error* error);
/* Sets it to `value` when earlier work of the CUDA stream, whose context is current, is done.
 * Values must rise. UNIMPLEMENTED: the session is on sim. */
CONCERT_API int concert_user_timeline_signal_on_stream(concert_user_timeline* timeline,
                                                       uint64_t value, void* stream,
                                                       concert_error* error);

/* ---- Communicators ---- */

typedef struct concert_join {
  uint32_t struct_size;
  uint32_t rank;    /* of this member */
  uint32_t ranks;   /* of the whole communicator */
  uint32_t gpu;     /* this rank's collectives are submitted to queues of this GPU */
  const char* name; /* where ranks of one user meet; at most 63 bytes */
} concert_join;

/* Returns at once; collectives wait until all ranks have joined. */
CONCERT_API int concert_communicator_join(concert_session* session, const concert_join* options,
                                          concert_communicator** communicator,
                                          concert_error* error);
/* NULL is ignored. */
CONCERT_API void concert_communicator_leave(concert_communicator* communicator);

#ifdef __cplusplus
} /* extern "C" */
#endif

#include "concert/ops.h"
#include "concert/program.h"

#endif /* CONCERT_CONCERT_H_ */
