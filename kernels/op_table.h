// The table of op kinds. A kind is one row here and one folder beside this file; nothing else in
// concert knows how many kinds there are. To add a kind: append it to concert_op_kind, write its
// folder, add its row.
#ifndef CONCERT_KERNELS_OP_TABLE_H_
#define CONCERT_KERNELS_OP_TABLE_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/access.h"
#include "kernels/failure.h"
#include "kernels/op.h"
#include "proto/ring/control_abi.h"
#include "proto/ring/ring_abi.h"

namespace concert::kernels {

namespace cuda {
struct LaunchContext;      // kernels/cuda_api/launch_context.h
struct CollectiveContext;  // kernels/cuda_api/launch_context.h
}  // namespace cuda

// A buffer's handle is its index in AdmitContext::buffers with its generation above it: an index is
// used again, a handle not before its generation comes round.
inline constexpr uint32_t kBufferIndexBits = 20;
inline constexpr uint32_t kBufferIndexMask = (uint32_t{1} << kBufferIndexBits) - 1;

// The generation of handles that name a slot of a program instead of a buffer, and what stands for
// slot i in Op::buffers.
inline constexpr uint32_t kSlotGeneration = CONCERT_SLOT_HANDLE(0) >> kBufferIndexBits;
inline constexpr uint32_t kSlotBit = uint32_t{1} << 31;

struct Program;  // kernels/program/program.h

// A buffer as admission sees it.
struct BufferRange {
  Address address = 0;
  uint64_t bytes = 0;   // 0: no such buffer
  int32_t gpu = 0;      // where it lies
  bool pool = false;    // every GPU's kernels may touch it
  bool sealed = false;  // no op may write it
  uint16_t generation = 0;
  // Its handle is a program's: no operand, so `bytes` is 0.
  const Program* program = nullptr;
};

// What admission may look at besides the descriptor.
struct AdmitContext {
  int32_t gpu = 0;                       // of the ring
  std::span<const BufferRange> buffers;  // by index; entry 0 is never valid
  uint32_t ranks = 0;                    // collectives: of the communicator, already looked up
  uint32_t rank = 0;                     // of them, whose part it is
  std::span<const BufferRange> slots;    // of the program that the op is to be part of
};

// Of LaunchContext::workspace, what any launch makes use of at most: what cuBLAS is recommended to
// have on Hopper (its documentation, cublasSetWorkspace).
inline constexpr uint64_t kMostWorkspaceBytes = 32 << 20;

// Ops that OpKind::launch_together takes.
inline constexpr size_t kMaxTogether = 8;

// An unsigned integer of `bytes` bytes, `at` bytes into a body.
struct RowCount {
  uint8_t at = 0, bytes = 4;
};

struct OpKind {
  uint16_t kind;     // concert_op_kind_name() is what it is called
  const char* noun;  // in a sentence, with an s for several; null: what it is called
  bool collective;

  // Checks `descriptor` (a private copy) and fills in op.work, op.buffers and the arguments. The
  // header fields (queue, ticket, waits) are the caller's business. Allocates nothing.
  Failure (*admit)(const concert_descriptor& descriptor, const AdmitContext& context, Op& op);

  // All that an admitted op reads and writes, in the order in which admission noted its buffers.
  Accesses (*accesses)(const Op& op);

  // Computes the result on the CPU, in fp32 or better, rounding once. One part, or one per rank in
  // rank order. Addresses are host pointers.
  void (*compute)(std::span<const Op* const> parts);

  // Enqueues one op on the context's stream. Null for collectives and in builds without CUDA.
  absl::Status (*launch)(cuda::LaunchContext& context, const Op& op);

  // Enqueues all ranks' parts. Null but for collectives in builds with CUDA.
  absl::Status (*launch_collective)(cuda::CollectiveContext& context,
                                    std::span<const Op* const> parts);

  // Enqueues the same op of several programs as one launch: at most kMaxTogether, of which each
  // goes_with the first. Op i does nothing where bit i of the word at `there`, which is the GPU's
  // to read, is 0; null: all are there. Null: each must be launched by itself.
  absl::Status (*launch_together)(cuda::LaunchContext& context, std::span<const Op* const> ops,
                                  const uint32_t* there) = nullptr;
  // Whether launch_together takes both in one launch. Null: it takes any two.
  bool (*goes_with)(const Op& op, const Op& other) = nullptr;

  // Both heed LaunchContext::begins_early, and releases_next where that is of use.
  bool launches_overlap = false;

  // Of kinds whose body has a number of rows, each of which becomes what it would alone: where in
  // the body operands are (concert_operand). So what has more of such rows is one op. Empty: the
  // kind is none of these.
  std::span<const uint8_t> row_operands = {};
  RowCount row_count = {};  // where that number is: of a copy, of bytes

  // Of LaunchContext::workspace, what `launch` makes use of, up to kMostWorkspaceBytes, if it gets
  // that; of several ops that launch_together takes, no more than their sum. Null: nothing.
  uint64_t (*workspace_bytes)(const Op& op) = nullptr;
};

// All kinds, ordered by their number.
std::span<const OpKind> AllOpKinds();

// Null for an unknown number. Constant time.
const OpKind* FindOpKind(uint16_t kind);
// False for an unknown number.
bool IsCollective(uint16_t kind);
// Whether programs may have ops of it. False for an unknown number.
bool ProgramsHold(uint16_t kind);
// What is wrong with an op whose kind FindOpKind does not know.
Failure UnknownKind(uint16_t kind);

// OpKind::accesses of an admitted op.
Accesses AccessesOf(const Op& op);

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_OP_TABLE_H_
