// From what a client recorded to a program: checks every op once, lays the arena out, and gives
// every operand its address. Pure and deterministic; 250 ops take less than a millisecond.
#ifndef CONCERT_KERNELS_PROGRAM_COMPILE_H_
#define CONCERT_KERNELS_PROGRAM_COMPILE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/failure.h"
#include "kernels/op_table.h"
#include "kernels/program/arena.h"
#include "kernels/program/program.h"
#include "proto/ring/control_abi.h"

namespace concert::kernels {

// Of one GPU. Copies that nobody changes meanwhile.
struct ProgramSource {
  int gpu = 0;
  std::span<const BufferRange> buffers;  // of the session, as AdmitContext has them
  std::span<const concert_program_slot> slots;
  std::span<const concert_descriptor> ops;
};

// Where slots lie in the arena. Slots whose uses do not overlap share memory.
struct ArenaPlan {
  uint64_t bytes = 0;            // 0: the program has no slots in use
  std::vector<ArenaSlot> slots;  // by number
};

// Arenas begin at multiples of this, as what devices allocate does.
inline constexpr uint64_t kArenaAlignment = 256;
constexpr uint64_t AlignedInArena(uint64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}
// Where slots and arenas lie while they have no memory yet: above all that a device maps, and below
// kExchangeBase.
inline constexpr Address kUnplacedArena = Address{1} << 61;

// Whether an operand of a program's op lies in a slot, and in which.
inline bool InSlot(const Access& access) { return (access.buffer & kSlotBit) != 0; }
inline uint32_t SlotOf(const Access& access) { return access.buffer & kBufferIndexMask; }

// Checks and admits one op of a program, whose slots the context has.
Failure AdmitStep(const concert_descriptor& descriptor, const AdmitContext& context, Op& op);

// Checks everything there is to check. An error names the op that is wrong, by its place and kind,
// with the sentence that it would fail with by itself; or the op that reads of an arena slot what
// no op before it has written, judged by the bounds of what ops read and write.
absl::StatusOr<ArenaPlan> PlanArena(const ProgramSource& source);

// The program with its arena at `arena`. REQUIRES: `plan` is of the same source, and `arena` is a
// multiple of kArenaAlignment with plan.bytes bytes.
absl::StatusOr<std::unique_ptr<Program>> BindProgram(const ProgramSource& source,
                                                     const ArenaPlan& plan, Address arena);

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_PROGRAM_COMPILE_H_
