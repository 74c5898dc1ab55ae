// The shared memory of a block of the step kernel, which the host must ask for.
#ifndef CONCERT_KERNELS_STEP_STEP_SHARED_H_
#define CONCERT_KERNELS_STEP_STEP_SHARED_H_

#include <cstdint>

#include "kernels/step/step_args.h"

namespace concert::kernels::cuda {

// Weights arrive in slots: kStepTile rows of kSlotColumns elements of K, zeros behind its end. They
// are two boxes of half the rows each, as tensor copies lay them down: lines of kStepColumnStep
// elements, first of each row, then the next ones of each. In a line, units of 16 bytes are mixed
// up as CU_TENSOR_MAP_SWIZZLE_128B does it, by where in shared memory the line lies. Between the
// boxes there are four lines, so that those of the second are mixed up differently: what lanes read
// at once, a row's line of each box, is then in different banks. Keys and values arrive in the same
// slots (CacheSlot).
inline constexpr uint32_t kSlotColumns = 1024;
inline constexpr uint32_t kSlotLineBytes = 2 * kStepColumnStep;
inline constexpr uint32_t kSlotBoxRows = kStepTile / 2;
inline constexpr uint32_t kSlotBoxLines = kSlotColumns / kStepColumnStep;  // of a row
inline constexpr uint32_t kSlotBoxBytes = kSlotBoxRows * kSlotBoxLines * kSlotLineBytes;
inline constexpr uint32_t kSlotBoxStep = kSlotBoxBytes + 4 * kSlotLineBytes;
inline constexpr uint32_t kSlotBytes = kSlotBoxStep + kSlotBoxBytes;
static_assert(kSlotLineBytes == 128);
inline constexpr int kSlots = 9;
static_assert(kSlots % kStepFeeders == 0);  // SlotWriter
// At the barrier of a slot that is full: what a warp that copies by itself needs.
inline constexpr uint32_t kSlotArrivals = 33;

inline constexpr uint32_t kStepScratchBytes = 48 << 10;  // sums of warps, of whatever stage

// Stages that are in a block at once: those that its warps are at, which load up to kSlots slots
// ahead, and the next, which take a microsecond to come.
inline constexpr int kStagePlaces = 8;
// Warps that read each of them.
inline constexpr uint32_t kStageReaders = kStepWarps + kStepFeeders;

// Units from `begin` on, before `end`.
struct UnitRange {
  uint32_t begin, end;
};

// What a block does of a stage, in one word: each test of a field of the stage by itself would wait
// for shared memory.
class StageTurn {
 public:
  enum Does : uint32_t {
    kTakesPart = 1 << 8,      // it has units
    kWaits = 1 << 9,          // for earlier stages
    kTellsFeeders = 1 << 10,  // when these have ended: what loads ahead waits for them, too
    kTellsBlocks = 1 << 11,   // when its part has ended
  };
  StageTurn() = default;
  CONCERT_ON_BOTH_SIDES StageTurn(StageKind kind, uint32_t does)
      : bits_(does | static_cast<uint32_t>(kind)) {}

  CONCERT_ON_BOTH_SIDES bool Has(Does does) const { return (bits_ & does) != 0; }
  CONCERT_ON_BOTH_SIDES StageKind kind() const { return static_cast<StageKind>(bits_ & 0xff); }

 private:
  uint32_t bits_;
};

// A stage as a block does it: addresses are where this run has what they name.
struct BlockStage {
  Stage stage;
  UnitRange units;  // of a GEMM, that are this block's
  uint32_t chunks;  // of an attention: that a row's head of the cache is cut into
  StageTurn turn;
};

struct alignas(128) StepMemory {
  alignas(128) char slots[kSlots][kSlotBytes];
  alignas(128) char scratch[kStepScratchBytes];
  alignas(16) char gains[2][2 * kSlotColumns];  // of two chunks of A
  float squares[2][kStepWarps][kMaxStepRows];   // of passes in turn (ScratchTurn)
  BlockStage stages[kStagePlaces];
  uint64_t stage_full[kStagePlaces], stage_empty[kStagePlaces];
  uint64_t full[kSlots];   // its bytes are there
  uint64_t empty[kSlots];  // every computing warp has read it
  uint32_t at_work;        // the stage at which the computing warps are
  uint32_t acquired;       // the last attention for which they have all that it waits for
  // The stage at which the block gave a wait up.
  static constexpr uint32_t kNowhere = ~0u;
  uint32_t stalled_at;
  uint32_t lengths[2][kMaxStepRows];  // of attentions in turn, by row: for all that load ahead
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_STEP_SHARED_H_
