// What the host hands to the step kernel. Shared by host and device code.
#ifndef CONCERT_KERNELS_STEP_STEP_ARGS_H_
#define CONCERT_KERNELS_STEP_STEP_ARGS_H_

#include <cuda.h>

#include <cstdint>

#include "kernels/attention_decode/attention_kernel_args.h"
#include "kernels/program/stalled_run.h"
#include "kernels/rows/row_args.h"
#include "kernels/step/step_stage.h"

namespace concert::kernels::cuda {

// Warps that compute, as many as the row kernel has, and a warpgroup of which all but one load
// ahead: a warpgroup, because only such give registers to others.
inline constexpr int kStepComputeThreads = kRowComputeThreads;
inline constexpr int kStepWarps = kStepComputeThreads / 32;
inline constexpr int kStepThreads = kStepComputeThreads + 128;
inline constexpr int kStepFeeders = 3;  // warps that load ahead

// What the stage before attention appends to the cache, in the slots of its rows. It comes from the
// exchange as q does: row r's k and v stand behind its q's.
struct StepAppend {
  uint32_t rows;  // 0: nothing: q, and all of the cache, is in memory when the stage begins
  IndexType slot_type;
  Address slots;
};

// A chunk is worth what it costs to add it up. Chunks are multiples of so many tokens.
inline constexpr uint32_t kMinStepChunk = 128, kStepChunkStep = 64;
// Tokens whose keys and values are in a slot of the ring.
CONCERT_ON_BOTH_SIDES constexpr uint32_t SlotTokens(uint32_t head_dim) { return 4096 / head_dim; }

struct StepAttention {
  AttentionDecodeArgs op;
  uint32_t group;       // heads of q that share one of the cache
  uint32_t chunks_max;  // that a row is worth being cut into
  // Of keys and of values: 64 elements of a head, and so many tokens of a page. 0: there are none,
  // and tokens are copied one by one.
  const CUtensorMap* maps;
  uint32_t box_tokens;  // a power of two
  StepAppend append;
  // Several blocks may share a row's head of the cache: what they leave for each other, tagged. Of
  // head h of row r and chunk c: (r * q_heads + h) * chunks + c, head_dim sums, and a state's two.
  // All attention stages have it in turn.
  uint64_t* sums;
  uint64_t* states;
  uint32_t number;  // of the attention among the program's
  bool exchanges;   // op.out is in the exchange

  // Whether q comes by the exchange, and with it what the cache lacks. Else the stage waits for all
  // of both, and so does what loads the cache ahead.
  CONCERT_ON_BOTH_SIDES bool q_exchanged() const { return append.rows != 0; }
};

struct alignas(16) Stage {
  StageKind kind;
  uint32_t units;  // that blocks share
  // What it waits for: the first of them here, since a stage has one as a rule, the others from
  // StepArgs::waits on.
  uint32_t wait_count, more_waits;
  Awaited awaited;  // if it is, its blocks tell of their ends
  StepWait wait;
  union {
    StepGemm gemm;
    StepAttention attention;
    RowTask row;
    StepCopy copy;
  };
};

// Of each word of a stage that is the address of a binding, where the arena has it: 1 + which
// binding; else 0.
struct alignas(16) StageBindings {
  static constexpr uint32_t kWords = 64;
  uint8_t of_word[kWords];
};
static_assert(sizeof(Stage) <= StageBindings::kWords * sizeof(Address));

// By which the launches of a lane tell, one after the other, that they waited in vain: in host
// memory. A block that did computes on, to an end, with wrong results, once the host has answered.
struct StepReport {
  // Written by the device: `stalled` last, which is then the launch's number.
  StalledRun run;
  uint64_t stalled;
  // Written by the host.
  uint64_t answered;  // the last launch that stalled and that has been answered for
  uint64_t launches;  // the number of the last launch
};

struct StepArgs {
  const Stage* stages;
  const StageBindings* stage_bindings;  // of each stage
  const StepWait* waits;
  uint32_t* ended;  // [stage][block of kMaxStepBlocks]: the epoch in which it last ended
  // Whose number, never 0, and whose run this is.
  StepReport* report;
  uint64_t launch, ticket;
  uint32_t session, queue;
  // Of all stages, those from the first on, before the last, are this run's: those that copy
  // bindings are not, where these are used where they are given.
  uint32_t first_stage, last_stage;
  uint32_t epoch;      // of this run; never 0, one more than the program's run before
  uint32_t first_tag;  // of this run: that of its first attention; never 0
  uint32_t in_flight;  // a block's slots that are on their way at once, at most
  uint64_t exchange;   // bytes from what stages name as exchanged to what this run uses
  // What this run empties for the next: a multiple of 16 bytes.
  Address emptied;
  uint64_t emptied_bytes;
  Address bindings[CONCERT_MAX_BINDINGS];
  // From where the arena has binding i to where this run has it, at i + 1; all 0: they are copied.
  Address moves[CONCERT_MAX_BINDINGS + 1];
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_STEP_ARGS_H_
