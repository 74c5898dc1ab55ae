// The sentences of failed ops. The daemon's hot path stores a message number and up to five numbers
// (concert_completion); whoever shows the failure renders the sentence from this one table. C11 and C++20.
//
// CONCERT_MESSAGES(X) calls X(name, value, template). In a template, %0..%4 stand for args[0..4] in decimal,
// %f0 for the name of the field args[0] (concert_field), %k0 for the name of op kind args[0], %d0 for
// the name of dtype args[0], %t0 for the timeline of index args[0] ("queue 3", "user timeline 3"),
// %e0 for the number whose bits in fp32 are args[0], and
// %s0 and %c0 for "session 7" and "communicator 7", or what the reader calls them. Where five numbers are
// too few, an argument holds two (concert_message_tagged): %n0 stands for its number, %q0 for the queue of
// its tag ("queue 3"), %a0 for what an op does by its tag ("gemm, reads a"). Values are part of the ABI:
// append, never renumber.
#ifndef CONCERT_PROTO_RING_MESSAGES_H_
#define CONCERT_PROTO_RING_MESSAGES_H_

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "proto/ring/ring_abi.h"

#define CONCERT_MESSAGES(X)                                                                             \
  X(NONE, 0, "no message")                                                                              \
  X(UNKNOWN_KIND, 1, "kind is %0, which this daemon does not know; the highest kind is %1")             \
  X(FIELD_RANGE, 2, "%f0 is %1; it must be between %2 and %3")                                          \
  X(FIELD_VALUE, 3, "%f0 is %1, which is not one of its values; the highest is %2")                     \
  X(RESERVED_NOT_ZERO, 4, "a reserved field or flag of the %k0 descriptor is not zero; "                \
                          "set it to zero or check the daemon's feature bits")                          \
  X(NO_BUFFER, 5, "%f0.buffer is %1, which is not a buffer of this session; register it first")         \
  X(BUFFER_MISSING, 6, "%f0 is required for this op but its buffer is 0")                               \
  X(OUT_OF_BOUNDS, 7, "%f0 needs %1 bytes at offset %2, but buffer %3 has only %4 bytes")               \
  X(MISALIGNED, 8, "%f0.offset %1 is not a multiple of %2 bytes")                                       \
  X(STRIDE_TOO_SMALL, 9, "%f0 is %1; a row holds %2 elements, so it must be at least that")             \
  X(OVERFLOW, 10, "the extent of %f0 does not fit in 64 bits; check sizes and strides")                 \
  X(OVERLAP, 11, "%f0 overlaps %f1; give %f0 memory of its own (d may be c, out of a norm x, of an "    \
                 "elementwise op x or y, and dst of a collective src, each in the same place)")         \
  X(WRONG_GPU, 12, "%f0 lies on GPU %1, but the queue is on GPU %2; allocate it there or use pool memory") \
  X(NO_TIMELINE, 13, "waits[%0].timeline is unknown: %s1 has no %t2")                                     \
  X(FOREIGN_TIMELINE, 14, "waits[%0].timeline belongs to session %1 of another user")                   \
  X(WAIT_TIMEOUT, 15, "waited %0 ms for %t1 of %s2 to reach %3; it stood at %4")                            \
  X(NO_COMMUNICATOR, 16, "communicator %0 is not one this session has joined")                          \
  X(COLLECTIVE_MISMATCH, 17, "rank %0 submitted %k1 of %2 elements, rank %3 something else; "           \
                             "all ranks must agree on kind, dtype, reduction, root and count (op %4)")  \
  X(RANK_MISSING, 18, "rank %0 of %c1 did not submit op %2 within %3 ms")                                   \
  X(RANK_NOT_JOINED, 19, "rank %0 of %c1 did not join within %2 ms")                                        \
  X(RANK_LEFT, 20, "rank %0 left %c1")                                                                     \
  X(COLLECTIVE_SEQUENCE, 21, "sequence is %0, but this rank's next op in %c1 is %2")                    \
  X(DRAINING, 22, "the daemon is draining and accepts no new ops")                                      \
  X(DRAIN_TIMEOUT, 23, "the op did not finish within the daemon's drain time of %0 s")                  \
  X(DEVICE_ERROR, 24, "GPU %0 failed to run the op (%k1): device error %2")                             \
  X(UNSUPPORTED, 25, "%f0 = %1 is not supported for %k2 on this device")                                \
  X(RING_PROTOCOL, 26, "ring of GPU %0: tail is %1 while head is %2 and capacity %3")                   \
  X(RING_SEQUENCE, 27, "ring of GPU %0: descriptor at position %1 carries sequence %2; "                \
                       "it was torn, stale or replayed")                                                \
  X(RING_TICKET, 28, "queue %0: ticket is %1, but the next one is %2")                                  \
  X(NO_QUEUE, 29, "ring of GPU %0: queue %1 is not a queue of this ring")                               \
  X(SESSION_CLOSED, 30, "the session was closed by the daemon")                                         \
  X(WAIT_UNREACHABLE, 31, "waits[%0] asks for value %1 of a timeline whose last submitted op is %2 "    \
                          "and whose queue is gone")                                                    \
  X(RANKS_SHARE_MEMORY, 32, "%f0 of rank %1 and rank %2 overlap; every rank needs memory of its own")  \
  X(RANK_REFUSED, 33, "op %1 of %c2 failed on rank %0 before it could start; that rank's error says why") \
  X(DEVICE_LOST, 34, "GPU %0 has faulted and runs nothing any more; the daemon must be restarted")  \
  X(BATCH_OVERLAP, 35, "%f0 is %1, so matrices of the batch share elements of %f3; one spans %2 elements") \
  X(D_DTYPE_OTHER, 36, "d_dtype is %0; D of a GEMM in %d1 has that dtype too, so it must be 0 or %1")    \
  X(D_DTYPE_FP8, 37, "d_dtype is %0; D of a GEMM in %d1 must be bf16 (1) or fp16 (2)")                   \
  X(SCALES_UNUSED, 38, "%f0 are given, but dtype is %d1; other operands than those in fp8_e4m3 have no "   \
                       "scales but one for each row of A, with flag 2")                                    \
  X(SCALES_MISSING, 39, "flags say that there is one scale per row, but the buffer of %f0 is 0")          \
  X(TOO_MANY_WAITS, 40, "the op has %0 waits that are not met; its user may have %1, and has them all")  \
  X(TOO_MANY_REFUSALS, 41, "%c0 is over: of ops that failed before all their ranks came a "   \
                           "user may have %1; its ranks must join anew")                              \
  X(RACE, 42, "op %n2 of %q2 (%a4) races with op %n1 of %q1 (%a3) for bytes %n3 to %n4 of buffer %0: "   \
              "no wait orders them; add a wait for ticket %n1 of %q1")                                     \
  X(NOT_MULTIPLE, 43, "%f0 is %1, which is not a multiple of %2")                                       \
  X(NO_PROGRAM, 44, "program is %0, which is not a program of this session; register it first")         \
  X(NOT_IN_PROGRAM, 45, "%k0 cannot be part of a program; submit it by itself")                          \
  X(ARENA_NOT_WRITTEN, 46, "%f0 reads %1 bytes at offset %2 of arena slot %3, "                        \
                           "of which no op before it has written all")                                     \
  X(SEALED, 47, "%f0 lies in buffer %1, which is sealed: ops only read it; write to another buffer")      \
  X(CACHE_DTYPE, 48, "cache_dtype is %0; a cache has the dtype of its op, here %d1, or fp8_e4m3, so it "   \
                     "must be 0, %1 or %2")                                                                \
  X(CACHE_SCALE, 49, "%f0 is %e1; it must be a finite number of at least 2^-126, or 0 for 1")              \
  X(CACHE_SCALE_UNUSED, 50, "%f0 is %e1, but the cache is in %d2; only one in fp8_e4m3 has scales, "       \
                            "so it must be 0")                                                            \
  X(RESIDUAL_WITHOUT_C, 51, "flags is %0, which says that C is a residual, but beta is 0, so that C is not " \
                            "read; set beta, to 1 as a rule, or clear flag %1")                           \
  X(GATE_ACTIVATION, 52, "activation is %0, but flags gate the product; a gate's must be gelu (2) or silu (3)") \
  X(GATE_WITH_C, 53, "beta is %e0, but flags gate the product, to which no C is added; set beta to 0 and add " \
                     "with an elementwise op")                                                             \
  X(INTERLEAVED_WITHOUT_GATE, 54, "flags is %0, which says how gates lie in a product that it does not gate; " \
                                  "set flag %1, too, or clear flag %2")                                   \
  X(RUN_STALLED, 55, "GPU %0 gave the run up: block %1 of its launch waited for others in vain at stage %2 of the " \
                     "program; runs submitted from now on do without the step kernel")

enum concert_message {
#define X(name, value, text) CONCERT_MESSAGE_##name = value,
  CONCERT_MESSAGES(X)
#undef X
};

#define CONCERT_FIELDS(X)                                                                       \
  X(NONE, 0, "field") X(M, 1, "m") X(N, 2, "n") X(K, 3, "k") X(BATCH, 4, "batch")               \
  X(A, 5, "a") X(W, 6, "w") X(C, 7, "c") X(D, 8, "d") X(BIAS, 9, "bias")                        \
  X(LDA, 10, "lda") X(LDW, 11, "ldw") X(LDC, 12, "ldc") X(LDD, 13, "ldd")                       \
  X(STRIDE_A, 14, "stride_a") X(STRIDE_W, 15, "stride_w") X(STRIDE_C, 16, "stride_c")           \
  X(STRIDE_D, 17, "stride_d") X(DTYPE, 18, "dtype") X(ACTIVATION, 19, "activation")             \
  X(FLAGS, 20, "flags") X(WAIT_COUNT, 21, "wait_count") X(COUNT, 22, "count")                   \
  X(SRC, 23, "src") X(DST, 24, "dst") X(ROOT, 25, "root") X(REDUCTION, 26, "reduction")         \
  X(BYTES, 27, "bytes") X(ALPHA, 28, "alpha") X(BETA, 29, "beta") X(KIND, 30, "kind")           \
  X(A_SCALES, 31, "a_scales") X(W_SCALES, 32, "w_scales")                                       \
  X(ROWS, 33, "rows") X(COLUMNS, 34, "columns") X(INPUT, 35, "x") X(RESIDUAL, 36, "residual")       \
  X(WEIGHT, 37, "weight") X(OUT, 38, "out") X(X_STRIDE, 39, "x_stride")                         \
  X(RESIDUAL_STRIDE, 40, "residual_stride") X(OUT_STRIDE, 41, "out_stride") X(IDS, 42, "ids")               \
  X(TABLE, 43, "table") X(VOCABULARY, 44, "vocabulary") X(TABLE_STRIDE, 45, "table_stride")         \
  X(INDEX_DTYPE, 46, "index_dtype") X(INDICES, 47, "indices") X(Q, 48, "q") X(V, 49, "v")           \
  X(POSITIONS, 50, "positions") X(SLOTS, 51, "slots") X(COS_SIN, 52, "cos_sin")                     \
  X(K_CACHE, 53, "k_cache") X(V_CACHE, 54, "v_cache") X(Q_HEADS, 55, "q_heads")                     \
  X(KV_HEADS, 56, "kv_heads") X(HEAD_DIM, 57, "head_dim") X(ROTARY_DIM, 58, "rotary_dim")           \
  X(POSITIONS_MAX, 59, "positions_max") X(PAGES, 60, "pages") X(PAGE_SIZE, 61, "page_size")         \
  X(Q_STRIDE, 62, "q_stride") X(K_STRIDE, 63, "k_stride") X(V_STRIDE, 64, "v_stride")               \
  X(POSITION_DTYPE, 65, "position_dtype") X(SLOT_DTYPE, 66, "slot_dtype")                 \
  X(PAGE_STRIDE, 67, "page_stride") X(TOKEN_STRIDE, 68, "token_stride")                             \
  X(HEAD_STRIDE, 69, "head_stride") X(PAGE_TABLE, 70, "page_table") X(LENGTHS, 71, "lengths")       \
  X(LENGTH_MAX, 72, "length_max") X(FUNCTION, 73, "function") X(Y, 74, "y")                         \
  X(Y_STRIDE, 75, "y_stride") X(OUT_DTYPE, 76, "out_dtype")                         \
  X(COUNTERS, 77, "counters") X(COUNTER_DTYPE, 78, "counter_dtype")                                 \
  X(COUNTER_MAX, 79, "counter_max") X(SCALES, 80, "scales")                                         \
  X(TEMPERATURES, 81, "temperatures") X(TOP_KS, 82, "top_ks") X(TOP_PS, 83, "top_ps")               \
  X(SEEDS, 84, "seeds") X(STEPS, 85, "steps") X(STEP_DTYPE, 86, "step_dtype")   \
  X(PROGRAM, 87, "program") X(BINDING_COUNT, 88, "binding_count") X(BINDING_0, 89, "bindings[0]") \
  X(BINDING_1, 90, "bindings[1]") X(BINDING_2, 91, "bindings[2]") X(BINDING_3, 92, "bindings[3]") \
  X(BINDING_4, 93, "bindings[4]") X(BINDING_5, 94, "bindings[5]") X(BINDING_6, 95, "bindings[6]") \
  X(BINDING_7, 96, "bindings[7]") X(BINDING_8, 97, "bindings[8]") X(BINDING_9, 98, "bindings[9]")   \
  X(TOKENS, 99, "tokens") X(SEQUENCES, 100, "sequences") X(QUERY_STARTS, 101, "query_starts") \
  X(K_SCALE, 102, "k_scale") X(V_SCALE, 103, "v_scale")

enum concert_field {
#define X(name, value, text) CONCERT_FIELD_##name = value,
  CONCERT_FIELDS(X)
#undef X
};

static inline const char* concert_message_template(uint32_t message) {
  switch (message) {
#define X(name, value, text) \
  case value:                \
    return text;
    CONCERT_MESSAGES(X)
#undef X
  }
  return "message %0 of a newer daemon";
}

static inline const char* concert_field_name(uint64_t field) {
  switch (field) {
#define X(name, value, text) \
  case value:                \
    return text;
    CONCERT_FIELDS(X)
#undef X
  }
  return "field";
}

static inline const char* concert_op_kind_name(uint64_t kind) {
  switch (kind) {
    case CONCERT_OP_INVALID:
      return "invalid";
#define X(name, value, text) \
  case value:                \
    return text;
    CONCERT_OP_KINDS(X)
#undef X
  }
  return "unknown";
}

static inline const char* concert_dtype_name(uint64_t dtype) {
  static const char* const kNames[] = {"invalid", "bf16", "fp16", "fp32", "fp8_e4m3",
                                       "int32", "int64"};
  return dtype < sizeof(kNames) / sizeof(kNames[0]) ? kNames[dtype] : "unknown";
}

/* Two numbers in one argument: `number` modulo 2^48, and `tag`. */
static inline uint64_t concert_message_tagged(uint64_t number, uint16_t tag) {
  return (number & 0xffffffffffffull) | (uint64_t)tag << 48;
}

/* The tag of what an op of `kind` (concert_op_kind) does with its operand `field` (concert_field). */
static inline uint16_t concert_message_access(uint16_t kind, uint16_t field) {
  return (uint16_t)((kind << 8) | (field & 0xff));
}

/* Whether an op of `kind` writes its operand `field`, which it may read before: what no sealed buffer may be. */
static inline int concert_op_writes(uint64_t kind, uint64_t field) {
  switch (field) {
    case CONCERT_FIELD_D:
    case CONCERT_FIELD_DST:
    case CONCERT_FIELD_OUT:
    case CONCERT_FIELD_RESIDUAL:
    case CONCERT_FIELD_PROGRAM: /* its arena */
    case CONCERT_FIELD_INDICES:
    case CONCERT_FIELD_COUNTERS:
    case CONCERT_FIELD_SCALES: return 1;
    case CONCERT_FIELD_Q:
    case CONCERT_FIELD_K_CACHE:
    case CONCERT_FIELD_V_CACHE: return kind == CONCERT_OP_ROPE_APPEND;
    default: return 0;
  }
}

/* What the reader calls the session (form 's') or the communicator ('c') of this number; NULL: it has no
 * name for it. The text must live until the sentence is made. */
typedef const char* concert_name_of(const void* context, char form, uint64_t number);

/* The word for args[n] in `form`, in `number` where it must be made. */
static inline const char* concert_message_word(char form, uint64_t arg, concert_name_of* name_of,
                                               const void* context, char* number, size_t size) {
  const char* name = NULL;
  const char* noun = "";
  const uint64_t tag = arg >> 48, field = tag & 0xff;
  uint32_t bits;
  float value;
  switch (form) {
    case 'f': return concert_field_name(arg);
    case 'k': return concert_op_kind_name(arg);
    case 'd': return concert_dtype_name(arg);
    case 'a':
      noun = concert_op_writes(tag >> 8, field) ? "writes" : "reads";
      snprintf(number, size, "%s, %s %s", concert_op_kind_name(tag >> 8), noun, concert_field_name(field));
      return number;
    case 'n': arg = concert_message_tagged(arg, 0); break;
    case 'e':
      bits = (uint32_t)arg;
      memcpy(&value, &bits, sizeof(value));
      snprintf(number, size, "%g", (double)value);
      return number;
    case 'q':
      noun = "queue ";
      arg = tag;
      break;
    case 't':
      noun = (arg & CONCERT_TIMELINE_USER) != 0 ? "user timeline " : "queue ";
      arg &= ~(uint64_t)CONCERT_TIMELINE_USER;
      break;
    case 's':
    case 'c':
      if (name_of != NULL) name = name_of(context, form, arg);
      if (name != NULL) return name;
      noun = form == 's' ? "session " : "communicator ";
      break;
    default: break;
  }
  snprintf(number, size, "%s%" PRIu64, noun, arg);
  return number;
}

/* Renders `message` with `args` into out[0..size), always terminated, cut if too long. Returns the length.
 * `name_of` may be NULL. */
static inline size_t concert_render_named_message(uint32_t message, const uint64_t args[5],
                                                  concert_name_of* name_of, const void* context, char* out,
                                                  size_t size) {
  const char* t = concert_message_template(message);
  size_t used = 0;
  char number[48];
  if (size == 0) return 0;
  for (; *t != '\0' && used + 1 < size; ++t) {
    char form = 0;
    const char* word;
    if (*t != '%') {
      out[used++] = *t;
      continue;
    }
    ++t;
    if (*t >= 'a' && *t <= 'z') form = *t++;
    word = concert_message_word(form, args[(unsigned)(*t - '0') % 5u], name_of, context, number,
                                sizeof(number));
    while (*word != '\0' && used + 1 < size) out[used++] = *word++;
  }
  out[used] = '\0';
  return used;
}

/* The same by numbers alone. */
static inline size_t concert_render_message(uint32_t message, const uint64_t args[5], char* out, size_t size) {
  return concert_render_named_message(message, args, NULL, NULL, out, size);
}

#endif  // CONCERT_PROTO_RING_MESSAGES_H_
