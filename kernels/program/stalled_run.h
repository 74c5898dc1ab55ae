// A run that its GPU has given up.
#ifndef CONCERT_KERNELS_PROGRAM_STALLED_RUN_H_
#define CONCERT_KERNELS_PROGRAM_STALLED_RUN_H_

#include <cstdint>

namespace concert::kernels {

// A block of its launch waited in vain for another's part of a stage. The run ends in its place on
// its lane, with wrong results.
struct StalledRun {
  uint32_t session = 0, queue = 0;  // of its op
  uint64_t ticket = 0;
  uint32_t stage = 0, block = 0;  // at which, and which, waited
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_PROGRAM_STALLED_RUN_H_
