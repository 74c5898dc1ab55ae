// An advance with addresses, shared by host and device code, and what it does to one counter.
#ifndef CONCERT_KERNELS_ADVANCE_ADVANCE_ARGS_H_
#define CONCERT_KERNELS_ADVANCE_ADVANCE_ARGS_H_

#include <cstdint>

#include "kernels/gemm/gemm_args.h"
#include "kernels/indices.h"

namespace concert::kernels {

// As concert_advance_body; slots 0: none.
struct AdvanceArgs {
  uint32_t rows, counter_max;
  Address counters, slots;
  IndexType counter_type, slot_type;
};

// REQUIRES: row < args.rows.
CONCERT_ON_BOTH_SIDES inline void AdvanceCounter(const AdvanceArgs& args, uint64_t row) {
  if (args.slots != 0 && LoadIndex(args.slots, row, args.slot_type) < 0) return;
  const int64_t counter = LoadIndex(args.counters, row, args.counter_type);
  // Of counter_max numbers from 0 on: what is at the bound already gets there again.
  const uint64_t next = Clamped(counter, args.counter_max) + 1;
  StoreIndex(args.counters, row, args.counter_type, static_cast<int64_t>(next));
}

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_ADVANCE_ADVANCE_ARGS_H_
