// The control protocol: a SOCK_SEQPACKET Unix socket, one message per packet, fixed-size structs. C11 and C++20.
//
//   client                                   daemon
//   Hello {versions, features, GPUs} ------>            credentials come from SO_PEERCRED
//                                    <------ HelloReply {layout} + fds: client region, daemon region,
//                                            one eventfd per ring (in the layout's ring order)
//   CreateQueue, AllocateBuffer, ... ------>
//                                    <------ reply with the request's number, handle, maybe one fd
//
// A message begins with concert_control_header; `size` is the whole packet. Replies carry the request's `type`
// and `request`, a status and, when it is not OK, a sentence. A client may have several requests outstanding;
// replies come in the order of the requests. Closing the socket ends the session: its queued ops are
// cancelled, what runs finishes, then its memory is released. An unknown type, a wrong size, a second Hello or
// an fd that was not asked for ends the session.
#ifndef CONCERT_PROTO_RING_CONTROL_ABI_H_
#define CONCERT_PROTO_RING_CONTROL_ABI_H_

#include "proto/ring/ring_abi.h"

#define CONCERT_CONTROL_MAGIC 0x54434e43u /* "CNCT", little-endian */

enum concert_control_type {
  CONCERT_CONTROL_HELLO = 1,
  CONCERT_CONTROL_CREATE_QUEUE = 2,
  CONCERT_CONTROL_DESTROY_QUEUE = 3,
  CONCERT_CONTROL_ALLOCATE_BUFFER = 4,
  CONCERT_CONTROL_IMPORT_BUFFER = 5,
  CONCERT_CONTROL_RELEASE_BUFFER = 6,
  CONCERT_CONTROL_JOIN_COMMUNICATOR = 7,
  CONCERT_CONTROL_LEAVE_COMMUNICATOR = 8,
  CONCERT_CONTROL_CREATE_PROGRAM = 9, /* with CONCERT_FEATURE_PROGRAMS */
  CONCERT_CONTROL_SEAL_BUFFER = 10,   /* with CONCERT_FEATURE_SEALED_BUFFERS */
};

enum {
  CONCERT_CONTROL_MESSAGE_MAX = 192, /* of a reply's sentence, with its final zero */
  CONCERT_COMMUNICATOR_NAME_MAX = 64,
  CONCERT_CLIENT_NAME_MAX = 64,
  CONCERT_GPU_NAME_MAX = 64,
};

struct concert_control_header {
  uint32_t magic;
  uint16_t type; /* concert_control_type */
  uint16_t size; /* of the whole message */
  uint32_t request;
  uint32_t reserved;
};

/* Every reply begins so. `message` is empty when status is OK. */
struct concert_control_reply {
  struct concert_control_header header;
  uint32_t status; /* concert_status_abi */
  uint32_t reserved;
  char message[CONCERT_CONTROL_MESSAGE_MAX];
};

struct concert_hello {
  struct concert_control_header header;
  uint16_t abi_major, abi_minor;
  uint32_t reserved;
  uint64_t features; /* what the client can use */
  uint64_t gpu_mask; /* rings wanted; 0: every GPU */
  char client_name[CONCERT_CLIENT_NAME_MAX];
};

struct concert_gpu_info {
  char name[CONCERT_GPU_NAME_MAX];
  uint8_t uuid[16];
  uint64_t memory_bytes;
  uint32_t sm_count;
  uint32_t device; /* 1: sim, 2: cuda */
};

struct concert_hello_reply {
  struct concert_control_reply reply;
  uint16_t abi_major, abi_minor;
  uint32_t session;
  uint64_t features; /* what the daemon offers and the client asked for */
  uint32_t gpu_count, reserved; /* entries of gpus that are filled in; index = GPU number on this node */
  struct concert_layout layout;
  struct concert_gpu_info gpus[CONCERT_MAX_RINGS];
};

struct concert_create_queue {
  struct concert_control_header header;
  uint32_t gpu;
  int32_t priority; /* -1 low, 0 normal, 1 high */
};
struct concert_create_queue_reply {
  struct concert_control_reply reply;
  uint32_t queue; /* index; its timeline is timelines[queue] and starts at `ticket` */
  uint32_t ring;  /* index into layout.rings */
  uint64_t ticket;
};

struct concert_destroy_queue {
  struct concert_control_header header;
  uint32_t queue, reserved;
};

/* Memory made by the daemon. The reply carries one fd: sim: a memfd to mmap; cuda: a POSIX fd of a CUDA VMM
 * allocation to cuMemImportFromShareableHandle. */
struct concert_allocate_buffer {
  struct concert_control_header header;
  uint32_t gpu, reserved;
  uint64_t bytes;
};

enum concert_import_kind {
  CONCERT_IMPORT_CUDA_IPC = 1, /* cuIpcGetMemHandle of a cuMemAlloc base pointer */
  CONCERT_IMPORT_CUDA_VMM = 2, /* one fd, from cuMemExportToShareableHandle */
  CONCERT_IMPORT_MEMFD = 3,    /* one fd, a memfd with F_SEAL_SHRINK (sim) */
};

struct concert_import_buffer {
  struct concert_control_header header;
  uint32_t gpu;
  uint32_t kind; /* concert_import_kind */
  uint64_t offset; /* of the buffer in the imported allocation */
  uint64_t bytes;  /* of the buffer */
  uint64_t allocation_bytes;
  uint8_t ipc_handle[64];
};

struct concert_buffer_reply {
  struct concert_control_reply reply;
  uint32_t buffer; /* handle, never 0 */
  uint32_t reserved;
  uint64_t allocation_bytes; /* what to map: the size asked for, rounded up */
};

struct concert_release_buffer {
  struct concert_control_header header;
  uint32_t buffer, reserved;
};

/* Its contents never change again: ops may read them under the handle of the concert_buffer_reply, which has no
 * fd, and the old one is released. Memory of equal contents is shared. */
struct concert_seal_buffer {
  struct concert_control_header header;
  uint32_t buffer, reserved;
};

/* Ranks meet under a name within their uid. The reply comes at once; ops wait until all ranks have joined. */
struct concert_join_communicator {
  struct concert_control_header header;
  uint32_t rank, ranks, gpu, reserved;
  char name[CONCERT_COMMUNICATOR_NAME_MAX];
};
struct concert_join_communicator_reply {
  struct concert_control_reply reply;
  uint32_t communicator, reserved; /* this rank's handle */
};
/* The number by which messages speak of the communicator of a handle. */
#define CONCERT_COMMUNICATOR_OF(handle) ((handle) >> 8)

struct concert_leave_communicator {
  struct concert_control_header header;
  uint32_t communicator, reserved;
};

/* Memory of a program's own, for operands of its ops: their `buffer` is CONCERT_SLOT_HANDLE. No buffer has such
 * a handle. */
enum concert_slot_role {
  CONCERT_SLOT_ARENA = 1,   /* intermediates; undefined when a run starts */
  CONCERT_SLOT_BINDING = 2, /* given with each run: copied in before its ops and, if they write it, out behind them */
};
struct concert_program_slot {
  uint32_t role, reserved;
  uint64_t bytes;
};
#define CONCERT_SLOT_HANDLE(slot) (0xfff00000u | (slot))

enum {
  CONCERT_MAX_PROGRAM_OPS = 10000,
  CONCERT_MAX_PROGRAM_SLOTS = 1024, /* bindings, at most CONCERT_MAX_BINDINGS, among them */
};

enum {
  /* Of a request: the client library made it of a batch that came again and again. It has no slots, and its runs
   * stand for the batch's ops. With CONCERT_FEATURE_BATCH_PROGRAMS. */
  CONCERT_PROGRAM_OF_BATCH = 1,
  /* Of the reply to one: while concert_ring_state.company is not 0, its ops are better submitted one by one. */
  CONCERT_PROGRAM_WHILE_ALONE = 1,
  /* With it: not in company of runs, but only while company has CONCERT_COMPANY_OF_OPS. Its ops say then that they
   * are CONCERT_OP_COULD_BE_RUN, so that two such sessions do not keep each other from it. */
  CONCERT_PROGRAM_BESIDE_RUNS = 2,
};

/* Ops that are checked once and then run as one op, in their order. One fd comes with it: a memfd that holds
 * `slot_count` concert_program_slot and behind them `op_count` concert_descriptor, whose first two lines are zero
 * but for `kind`. Nothing reads it after the reply. A program is released as buffers are. Buffers that its ops
 * use live at least as long. */
struct concert_create_program {
  struct concert_control_header header;
  uint32_t gpu, slot_count, op_count;
  uint32_t flags; /* CONCERT_PROGRAM_OF_BATCH */
};
struct concert_program_reply {
  struct concert_control_reply reply;
  uint32_t program; /* handle, never 0 */
  uint32_t flags;   /* CONCERT_PROGRAM_WHILE_ALONE, CONCERT_PROGRAM_BESIDE_RUNS */
  uint64_t arena_bytes;
};

static_assert(sizeof(struct concert_program_slot) == 16, "ABI");
static_assert(sizeof(struct concert_create_program) == 32, "ABI");
static_assert(sizeof(struct concert_program_reply) == 216 + 16, "ABI");
static_assert(sizeof(struct concert_control_header) == 16, "ABI");
static_assert(sizeof(struct concert_control_reply) == 24 + CONCERT_CONTROL_MESSAGE_MAX, "ABI");
static_assert(sizeof(struct concert_hello) == 16 + 24 + CONCERT_CLIENT_NAME_MAX, "ABI");
CONCERT_ABI_ASSERT(concert_hello, gpu_mask, 32);
static_assert(sizeof(struct concert_gpu_info) == 96, "ABI");
CONCERT_ABI_ASSERT(concert_hello_reply, layout, 216 + 24);
CONCERT_ABI_ASSERT(concert_hello_reply, gpus, 216 + 24 + 576);
static_assert(sizeof(struct concert_create_queue) == 24, "ABI");
static_assert(sizeof(struct concert_create_queue_reply) == 216 + 16, "ABI");
static_assert(sizeof(struct concert_destroy_queue) == 24, "ABI");
static_assert(sizeof(struct concert_allocate_buffer) == 32, "ABI");
static_assert(sizeof(struct concert_import_buffer) == 112, "ABI");
static_assert(sizeof(struct concert_buffer_reply) == 216 + 16, "ABI");
static_assert(sizeof(struct concert_release_buffer) == 24, "ABI");
static_assert(sizeof(struct concert_seal_buffer) == 24, "ABI");
static_assert(sizeof(struct concert_join_communicator) == 32 + CONCERT_COMMUNICATOR_NAME_MAX, "ABI");
static_assert(sizeof(struct concert_join_communicator_reply) == 216 + 8, "ABI");
static_assert(sizeof(struct concert_leave_communicator) == 24, "ABI");

#endif  // CONCERT_PROTO_RING_CONTROL_ABI_H_
