// The shared memory of a block of the step kernel, which the host must ask for.
#ifndef CONCERT_KERNELS_STEP_STEP_SHARED_H_
#define CONCERT_KERNELS_STEP_STEP_SHARED_H_

#include <cstdint>

#include "kernels/step/step_args.h"

namespace concert::kernels::cuda {

// Weights arrive in slots: kStepTile rows of up to kSlotColumns elements of K. Rows are 16 bytes
// further apart than they are long, so that 16 bytes of eight of them, which are read at once, lie
// in different banks. Keys and values arrive in the same slots (CacheSlot).
inline constexpr uint32_t kSlotColumns = 1024;
inline constexpr uint32_t kSlotRowBytes = 2 * kSlotColumns + 16;
inline constexpr uint32_t kSlotBytes = kStepTile * kSlotRowBytes;
inline constexpr int kSlots = 10;
static_assert(kSlots % kStepFeeders == 0);  // SlotWriter
// At the barrier of a slot that is full: what a warp that copies by itself needs.
inline constexpr uint32_t kSlotArrivals = 33;

inline constexpr uint32_t kStepScratchBytes = 33 << 10;  // sums of warps, of whatever stage

// Where a warp arranges rows of A.
inline constexpr uint32_t kStepRowsBytes = 2 << 10;

struct alignas(128) StepMemory {
  alignas(128) char slots[kSlots][kSlotBytes];
  alignas(128) char scratch[kStepScratchBytes];
  alignas(128) char rows[kStepWarps][kStepRowsBytes];
  alignas(16) char gains[2][2 * kSlotColumns];  // of two chunks of A
  float squares[kStepWarps][kMaxStepRows];
  // The stage at work and the next: of the computing warps, and of each that loads ahead.
  Stage computed[2], fed[kStepFeeders][2];
  uint64_t full[kSlots];   // its bytes are there
  uint64_t empty[kSlots];  // every computing warp has read it
  uint32_t stage;          // at which the computing warps are, which have all that it waits for
  uint32_t lengths[2];     // of attention's items, in turn: for all that load ahead
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_STEP_SHARED_H_
