// Where in a stage addresses stand, of which a run may move those that are of its bindings.
#ifndef CONCERT_KERNELS_STEP_STAGE_ADDRESSES_H_
#define CONCERT_KERNELS_STEP_STAGE_ADDRESSES_H_

#include <span>
#include <vector>

#include "kernels/program/program.h"
#include "kernels/step/step_args.h"

namespace concert::kernels::cuda {

// All addresses of operands that a stage has, but for weights, and caches that attention reads: of
// those there are tensor maps.
std::vector<Address*> AddressesOf(Stage& stage);

// Which of them lie where the arena has a binding.
StageBindings FindBindings(Stage& stage, std::span<const Program::Binding> bindings);

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_STAGE_ADDRESSES_H_
