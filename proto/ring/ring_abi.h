// The shared-memory ABI between a client process and concertd. C11 and C++20; depends on nothing. The bodies of ops are
// in ops/.
//
// A session has two memory regions, both memfds that the daemon makes, sizes, seals against resizing and
// passes with SCM_RIGHTS in the reply to Hello (see control_abi.h):
//
//   client region   written by the client (and its GPU), read by the daemon, which trusts nothing in it
//     +-----------------------------+ 0
//     | submit control, one per ring| concert_submit_control[ring_count]
//     +-----------------------------+ layout.waiters_offset
//     | futex waiter counts         | uint32_t[max_queues]
//     +-----------------------------+ layout.user_timelines_offset
//     | user timelines              | concert_timeline[max_user_timelines]
//     +-----------------------------+ layout.rings[i].descriptors_offset
//     | descriptors of ring i       | concert_descriptor[capacity]
//     +-----------------------------+ layout.client_bytes
//
//   daemon region   written by the daemon and the GPU, mapped read-only by the client
//     +-----------------------------+ 0
//     | session page                | concert_session_page
//     +-----------------------------+ layout.ring_states_offset
//     | ring states, one per ring   | concert_ring_state[ring_count]
//     +-----------------------------+ layout.timelines_offset
//     | queue timelines             | concert_timeline[max_queues]
//     +-----------------------------+ layout.rings[i].completions_offset
//     | completions of ring i       | concert_completion[completion_capacity]
//     +-----------------------------+ layout.daemon_bytes
//
// The daemon region carries F_SEAL_FUTURE_WRITE, so that a timeline the dispatcher sees was written by the
// GPU or the daemon and never by the client. Every offset is a multiple of 64 bytes; the layout is chosen by
// the daemon and travels in the Hello reply, so that it can change without a new ABI version. There is one
// ring per session and GPU.
//
// Life of a descriptor (slot = position % capacity; positions count from 0 and never wrap):
//
//             client writes slot,              daemon copies the slot, then
//             then stores tail (release)       stores head (release)
//   [Free] ---------------------------> [Published] ---------------------> [Free]
//      ^                                                                     |
//      +------ tail - head < capacity: the client may write the slot --------+
//
// Life of an op, as the client sees it:
//
//   Published -> accepted -> running -> its queue's timeline reaches the op's ticket
//        \-> bad op: a completion entry is published first, then the timeline reaches the ticket
//
// Memory ordering, both ends of each pair:
//   submit_control.tail        client: store-release after the descriptors; daemon: load-acquire before them.
//   ring_state.head            daemon: store-release after copying; client: load-acquire before reusing slots.
//   ring_state.completion_tail daemon: store-release after the entries; client: load-acquire before them.
//   submit_control.completion_head  client: store-release after reading; daemon: load-acquire before reuse.
//   timeline.value             GPU or daemon: system-scope store after the op's results; client: load-acquire.
//   ring_state.sleeping        Dekker pair with tail. Client: store tail, full fence, load sleeping; if it is
//                              not zero, write the ring's eventfd. Daemon: store sleeping = 1, full fence, load
//                              every tail; only if all are unchanged does it sleep.
//   waiters[queue]             Dekker pair with the timeline. Client: add 1, full fence, load the timeline,
//                              FUTEX_WAIT on the low half of the value. Daemon: see the timeline, full fence,
//                              load waiters; if it is not zero, FUTEX_WAKE.
//
// The tail is a lone, aligned 64-bit word and nothing here assumes that a CPU wrote it: a client's CUDA graph
// may ring it with a stream write-value.
//
// Compatibility: the major version must match. Minor versions only append: fields into reserved space (which
// must be zero), values to enums, bits to features. A daemon refuses a non-zero reserved field, so a client
// that uses a new field must first have seen its feature bit.
#ifndef CONCERT_PROTO_RING_RING_ABI_H_
#define CONCERT_PROTO_RING_RING_ABI_H_

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ring/ops/advance.h"
#include "proto/ring/ops/argmax.h"
#include "proto/ring/ops/attention_decode.h"
#include "proto/ring/ops/attention_prefill.h"
#include "proto/ring/ops/collective.h"
#include "proto/ring/ops/copy.h"
#include "proto/ring/ops/elementwise.h"
#include "proto/ring/ops/embedding.h"
#include "proto/ring/ops/gated_activation.h"
#include "proto/ring/ops/gemm.h"
#include "proto/ring/ops/layer_norm.h"
#include "proto/ring/ops/operand.h"
#include "proto/ring/ops/program.h"
#include "proto/ring/ops/quantize.h"
#include "proto/ring/ops/rms_norm.h"
#include "proto/ring/ops/rope_append.h"
#include "proto/ring/ops/sample.h"

#define CONCERT_ABI_MAJOR 1
#define CONCERT_ABI_MINOR 4
#define CONCERT_SESSION_MAGIC 0x31545245434e4f43ull /* "CONCERT1", little-endian */

enum {
  CONCERT_MAX_RINGS = 16,          /* GPUs of a node */
  CONCERT_MAX_QUEUES = 256,        /* of a session */
  CONCERT_MAX_USER_TIMELINES = 64, /* of a session */
  CONCERT_MAX_WAITS = 4,           /* of an op */
};

/* Feature bits of the Hello exchange. */
#define CONCERT_FEATURE_CUDA_MEMORY (1ull << 0) /* pool and imported CUDA memory */
#define CONCERT_FEATURE_HOST_MEMORY (1ull << 1) /* buffers are memfds that both sides map (sim) */
#define CONCERT_FEATURE_FP8 (1ull << 2)         /* GEMMs of CONCERT_ABI_FP8_E4M3, with scales; since 1.1 */
#define CONCERT_FEATURE_ROW_OPS (1ull << 3)     /* rms_norm and gated_activation; since 1.2 */
#define CONCERT_FEATURE_MODEL_OPS (1ull << 4)   /* embedding to elementwise; since 1.3 */
#define CONCERT_FEATURE_STEP_OPS (1ull << 5)    /* advance, quantize, sample and attention_prefill; since 1.4 */
#define CONCERT_FEATURE_PROGRAMS (1ull << 6)    /* programs and their runs; since 1.4 */
#define CONCERT_FEATURE_SEALED_BUFFERS (1ull << 7) /* CONCERT_CONTROL_SEAL_BUFFER; since 1.4 */
#define CONCERT_FEATURE_FP8_KV (1ull << 8)      /* caches of CONCERT_ABI_FP8_E4M3, with scales; since 1.4 */
#define CONCERT_FEATURE_BATCH_PROGRAMS (1ull << 9) /* programs of batches: CONCERT_PROGRAM_OF_BATCH; since 1.4 */
#define CONCERT_FEATURE_GEMM_EPILOGUES (1ull << 10) /* GEMMs: residuals, gates, scales of rows; since 1.4 */
#define CONCERT_OP_FEATURES /* on every device */                                     \
  (CONCERT_FEATURE_FP8 | CONCERT_FEATURE_ROW_OPS | CONCERT_FEATURE_MODEL_OPS |        \
   CONCERT_FEATURE_STEP_OPS | CONCERT_FEATURE_PROGRAMS | CONCERT_FEATURE_SEALED_BUFFERS | \
   CONCERT_FEATURE_FP8_KV | CONCERT_FEATURE_BATCH_PROGRAMS | CONCERT_FEATURE_GEMM_EPILOGUES)

/* Kinds of op: X(name, value, text). Values are part of the ABI; new kinds are appended. */
#define CONCERT_OP_KINDS(X)                                                          \
  X(GEMM, 1, "gemm") X(COPY, 2, "copy") X(ALL_REDUCE, 3, "all_reduce")               \
  X(ALL_GATHER, 4, "all_gather") X(REDUCE_SCATTER, 5, "reduce_scatter")              \
  X(ALL_TO_ALL, 6, "all_to_all") X(BROADCAST, 7, "broadcast") X(BARRIER, 8, "barrier")    \
  X(RMS_NORM, 9, "rms_norm") X(GATED_ACTIVATION, 10, "gated_activation")         \
  X(EMBEDDING, 11, "embedding") X(ARGMAX, 12, "argmax") X(ROPE_APPEND, 13, "rope_append") \
  X(ATTENTION_DECODE, 14, "attention_decode") X(LAYER_NORM, 15, "layer_norm") \
  X(ELEMENTWISE, 16, "elementwise") X(ADVANCE, 17, "advance") X(QUANTIZE, 18, "quantize") \
  X(SAMPLE, 19, "sample") X(PROGRAM, 20, "program")                             \
  X(ATTENTION_PREFILL, 21, "attention_prefill")

enum concert_op_kind {
  CONCERT_OP_INVALID = 0,
#define X(name, value, text) CONCERT_OP_##name = value,
  CONCERT_OP_KINDS(X)
#undef X
#define X(name, value, text) +1
  CONCERT_OP_KIND_COUNT = 0 CONCERT_OP_KINDS(X), /* kinds are numbered from 1 to this */
#undef X
};

/* A timeline id names a timeline node-wide: session id in the high half, index in the low half. User
 * timelines (signalled by the client or its GPU) have CONCERT_TIMELINE_USER set in the index. */
#define CONCERT_TIMELINE_USER 0x80000000u
#define CONCERT_TIMELINE_ID(session, index) (((uint64_t)(session) << 32) | (uint32_t)(index))

struct concert_wait_entry {
  uint64_t timeline; /* id; 0: unused slot */
  uint64_t value;    /* satisfied when the timeline is >= value */
};

enum {
  /* Of an op of a batch that is a program with CONCERT_PROGRAM_BESIDE_RUNS and is submitted op by op. With
   * CONCERT_FEATURE_BATCH_PROGRAMS. */
  CONCERT_OP_COULD_BE_RUN = 1,
};

struct concert_descriptor {
  /* Line 0. `sequence` is the ring position + 1: a torn, stale or replayed slot does not match. */
  uint64_t sequence;
  uint64_t ticket; /* value that the queue's timeline takes; previous ticket of the queue + 1, or more: see
                      concert_program_body.covered */
  uint32_t queue;  /* index in the session */
  uint16_t kind;   /* concert_op_kind */
  uint16_t flags;  /* CONCERT_OP_COULD_BE_RUN */
  uint32_t wait_count;
  uint32_t reserved0;
  uint64_t deadline_ns; /* hint on CLOCK_MONOTONIC; 0: none */
  uint64_t reserved1[3];
  /* Line 1. */
  struct concert_wait_entry waits[CONCERT_MAX_WAITS];
  /* Lines 2 to 4. */
  union {
    struct concert_gemm_body gemm;
    struct concert_collective_body collective;
    struct concert_copy_body copy;
    struct concert_rms_norm_body rms_norm;
    struct concert_gated_activation_body gated_activation;
    struct concert_embedding_body embedding;
    struct concert_argmax_body argmax;
    struct concert_rope_append_body rope_append;
    struct concert_attention_decode_body attention_decode;
    struct concert_layer_norm_body layer_norm;
    struct concert_elementwise_body elementwise;
    struct concert_advance_body advance;
    struct concert_quantize_body quantize;
    struct concert_sample_body sample;
    struct concert_program_body program;
    struct concert_attention_prefill_body attention_prefill;
    uint8_t raw[CONCERT_BODY_BYTES];
  } body;
};

/* An op that did not succeed. The sentence is made by the reader from `message` and `args` (messages.h). */
struct concert_completion {
  uint64_t sequence; /* completion position + 1 */
  uint64_t ticket;
  uint16_t queue;
  uint16_t covered; /* so many tickets before this one have the same outcome: the op's body.program.covered */
  uint16_t status;  /* concert_status_abi, never 0 */
  uint16_t message; /* concert_message */
  uint64_t args[5];
};

/* Statuses of ops and of control replies; numbers follow the gRPC codes of the same meaning. */
enum concert_status_abi {
  CONCERT_ABI_OK = 0,
  CONCERT_ABI_CANCELLED = 1,           /* drained, or its session or communicator went away */
  CONCERT_ABI_INVALID_ARGUMENT = 3,    /* a bad field; the message names it */
  CONCERT_ABI_DEADLINE_EXCEEDED = 4,   /* a wait or a missing rank outlasted its bound */
  CONCERT_ABI_NOT_FOUND = 5,           /* an unknown or released handle */
  CONCERT_ABI_PERMISSION_DENIED = 7,   /* a handle of another uid */
  CONCERT_ABI_RESOURCE_EXHAUSTED = 8,  /* a quota or a full table */
  CONCERT_ABI_FAILED_PRECONDITION = 9, /* right request, wrong state */
  CONCERT_ABI_UNIMPLEMENTED = 12,
  CONCERT_ABI_INTERNAL = 13,           /* the device failed */
  CONCERT_ABI_UNAVAILABLE = 14,        /* draining, or no daemon */
};

/* One producer word and one consumer word, each alone on its cache line. */
struct concert_submit_control {
  uint64_t tail; /* descriptors published */
  uint64_t reserved0[7];
  uint64_t completion_head; /* completions read */
  uint64_t reserved1[7];
};

/* What concert_ring_state.company says of other queues, of whatever session. */
enum concert_company {
  CONCERT_COMPANY = 1,        /* they are at work on the GPU */
  CONCERT_COMPANY_OF_OPS = 2, /* of one's own session, or with ops that are no runs, nor CONCERT_OP_COULD_BE_RUN */
};

struct concert_ring_state {
  uint64_t head;     /* descriptors consumed */
  uint32_t sleeping; /* the dispatcher waits on the ring's eventfd */
  uint32_t company;  /* concert_company; a hint, for CONCERT_PROGRAM_WHILE_ALONE */
  uint64_t reserved1[6];
  uint64_t completion_tail; /* completions published */
  uint64_t reserved2[7];
};

/* One timeline per cache line, so that queues do not share lines. */
struct concert_timeline {
  uint64_t value;
  uint64_t reserved[7];
};

enum concert_session_state {
  CONCERT_SESSION_RUNNING = 1,
  CONCERT_SESSION_DRAINING = 2, /* no new ops are accepted */
  CONCERT_SESSION_CLOSED = 3,   /* the daemon dropped the session; close_status and close_message say why */
};

struct concert_session_page {
  uint64_t magic;
  uint16_t abi_major, abi_minor;
  uint32_t session; /* id, never 0, never reused in a daemon's life */
  uint64_t features;
  uint32_t state; /* concert_session_state */
  uint16_t close_status;
  uint16_t close_message; /* concert_message */
  uint64_t close_args[5];
  uint64_t reserved[7];
};

struct concert_ring_layout {
  uint32_t gpu;
  uint32_t capacity;            /* descriptors; a power of two */
  uint32_t completion_capacity; /* a power of two, >= capacity: an accepted op has a slot reserved */
  uint32_t reserved;
  uint64_t descriptors_offset; /* in the client region */
  uint64_t completions_offset; /* in the daemon region */
};

struct concert_layout {
  uint64_t client_bytes, daemon_bytes;
  uint64_t waiters_offset, user_timelines_offset;  /* in the client region */
  uint64_t ring_states_offset, timelines_offset;   /* in the daemon region */
  uint32_t ring_count, max_queues, max_user_timelines, reserved;
  struct concert_ring_layout rings[CONCERT_MAX_RINGS];
};

static_assert(sizeof(struct concert_wait_entry) == 16, "ABI");
static_assert(sizeof(struct concert_descriptor) == 320, "ABI: five cache lines");
CONCERT_ABI_ASSERT(concert_descriptor, sequence, 0);
CONCERT_ABI_ASSERT(concert_descriptor, ticket, 8);
CONCERT_ABI_ASSERT(concert_descriptor, queue, 16);
CONCERT_ABI_ASSERT(concert_descriptor, kind, 20);
CONCERT_ABI_ASSERT(concert_descriptor, flags, 22);
CONCERT_ABI_ASSERT(concert_descriptor, wait_count, 24);
CONCERT_ABI_ASSERT(concert_descriptor, deadline_ns, 32);
CONCERT_ABI_ASSERT(concert_descriptor, waits, 64);
CONCERT_ABI_ASSERT(concert_descriptor, body, 128);
static_assert(sizeof(struct concert_completion) == 64, "ABI: one cache line");
CONCERT_ABI_ASSERT(concert_completion, ticket, 8);
CONCERT_ABI_ASSERT(concert_completion, queue, 16);
CONCERT_ABI_ASSERT(concert_completion, covered, 18);
CONCERT_ABI_ASSERT(concert_completion, status, 20);
CONCERT_ABI_ASSERT(concert_completion, message, 22);
CONCERT_ABI_ASSERT(concert_completion, args, 24);
static_assert(sizeof(struct concert_submit_control) == 128, "ABI");
CONCERT_ABI_ASSERT(concert_submit_control, tail, 0);
CONCERT_ABI_ASSERT(concert_submit_control, completion_head, 64);
static_assert(sizeof(struct concert_ring_state) == 128, "ABI");
CONCERT_ABI_ASSERT(concert_ring_state, company, 12);
CONCERT_ABI_ASSERT(concert_ring_state, head, 0);
CONCERT_ABI_ASSERT(concert_ring_state, sleeping, 8);
CONCERT_ABI_ASSERT(concert_ring_state, completion_tail, 64);
static_assert(sizeof(struct concert_timeline) == 64, "ABI");
static_assert(sizeof(struct concert_session_page) == 128, "ABI");
CONCERT_ABI_ASSERT(concert_session_page, session, 12);
CONCERT_ABI_ASSERT(concert_session_page, features, 16);
CONCERT_ABI_ASSERT(concert_session_page, state, 24);
CONCERT_ABI_ASSERT(concert_session_page, close_status, 28);
CONCERT_ABI_ASSERT(concert_session_page, close_args, 32);
static_assert(sizeof(struct concert_ring_layout) == 32, "ABI");
static_assert(sizeof(struct concert_layout) == 64 + 32 * CONCERT_MAX_RINGS, "ABI");

#endif  // CONCERT_PROTO_RING_RING_ABI_H_
