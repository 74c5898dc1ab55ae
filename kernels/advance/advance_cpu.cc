// The reference advance.
#include "kernels/advance/advance_op.h"

namespace concert::kernels {

void ComputeAdvance(std::span<const Op* const> parts) {
  const AdvanceArgs& args = parts[0]->advance;
  for (uint64_t row = 0; row < args.rows; ++row) AdvanceCounter(args, row);
}

}  // namespace concert::kernels
