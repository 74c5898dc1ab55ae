// What the host hands to the step kernel. Shared by host and device code.
#ifndef CONCERT_KERNELS_STEP_STEP_ARGS_H_
#define CONCERT_KERNELS_STEP_STEP_ARGS_H_

#include <cstdint>

#include "kernels/attention_decode/attention_kernel_args.h"
#include "kernels/rows/row_args.h"
#include "kernels/step/step_stage.h"

namespace concert::kernels::cuda {

// Warps that compute, as many as the row kernel has, and a warpgroup of which one loads ahead: a
// warpgroup, because only such give registers to others.
inline constexpr int kStepComputeThreads = kRowComputeThreads;
inline constexpr int kStepWarps = kStepComputeThreads / 32;
inline constexpr int kStepThreads = kStepComputeThreads + 128;
inline constexpr int kStepComputeRegisters = 224, kStepFeedRegisters = 64;
inline constexpr uint32_t kMaxStepBlocks = 160;  // one on each SM

// What the stage before attention appends to the cache, in the slots of its rows. It comes from the
// exchange as q does: row r's k and v stand behind its q's.
struct StepAppend {
  uint32_t rows;  // 0: nothing: q, and all of the cache, is in memory when the stage begins
  IndexType slot_type;
  Address slots;
};

struct StepAttention {
  AttentionDecodeArgs op;
  StepAppend append;
  // Several blocks may share a row's head of the cache: what they leave, and how many of them have
  // ended, by row and head.
  float* sums;
  SoftmaxState* states;
  uint32_t* ended;
  bool exchanges;  // op.out is in the exchange
};

struct alignas(16) Stage {
  StageKind kind;
  uint32_t units;  // that blocks share
  // What it waits for: the first of them here, since a stage has one as a rule, the others from
  // StepArgs::waits on.
  uint32_t wait_count, more_waits;
  bool signals;  // others wait for its end
  StepWait wait;
  union {
    StepGemm gemm;
    StepAttention attention;
    RowTask row;
    StepCopy copy;
  };
};

// Of a kernel that waited in vain, in host memory. It computes on, to an end, with wrong results.
struct StepReport {
  uint32_t missing;  // not 0: what it waited for did not come
  uint32_t block;    // that waited
};

struct StepArgs {
  const Stage* stages;
  const StepWait* waits;
  uint32_t* ended;  // [stage][block of kMaxStepBlocks]: the epoch in which it last ended
  StepReport* report;
  uint32_t stage_count;
  uint32_t epoch;      // of this run; never 0, one more than the program's run before
  uint32_t in_flight;  // slots of a block that are on their way at once, at most
  // Bytes from what stages name as exchanged to what this run uses, and to what it empties.
  uint64_t exchange, emptied;
  Address bindings[CONCERT_MAX_BINDINGS];
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_STEP_ARGS_H_
