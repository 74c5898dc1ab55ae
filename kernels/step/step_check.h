// Proves of a list of stages, before anybody follows it, that it comes to its end and does what its
// program does as far as order is concerned. It knows a plan by its stages alone, not by how it was
// made. Pure.
#ifndef CONCERT_KERNELS_STEP_STEP_CHECK_H_
#define CONCERT_KERNELS_STEP_STEP_CHECK_H_

#include "absl/status/status.h"
#include "kernels/program/program.h"
#include "kernels/step/step_plan.h"

namespace concert::kernels {

// INTERNAL, saying which stage and why, unless
// - stages wait for the ends of earlier ones only, which tell of them, and look in the exchange for
//   what an earlier one leaves just there: all blocks being on the GPU, no wait lasts for ever;
// - what is read of the arena has been written by stages before, and is there for whoever reads it,
//   as all that one stage writes and another touches; what is overwritten has been read;
// - what is read ahead of its stage (weights; tables and caches of attention that takes its heads
//   from the exchange) nobody writes meanwhile;
// - of two ops that touch the same memory, the one that comes first in the program does so here.
absl::Status CheckStep(const Program& program, const StepPlan& plan);

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_STEP_STEP_CHECK_H_
