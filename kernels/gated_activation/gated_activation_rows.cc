#include "kernels/gated_activation/gated_activation_op.h"
#include "kernels/rows/row_args.h"

namespace concert::kernels::cuda {

uint64_t LowerGatedActivation(const Op& op, RowTask& task) {
  const GatedActivationArgs& args = op.gated_activation;
  task.kind = RowKind::kGatedActivation;
  task.gated_activation = args;
  task.SetElements(args.dtype, args.x | args.out, args.x_stride | args.out_stride | args.columns);
  return BlocksForPacks(task, uint64_t{args.rows} * args.columns);
}

}  // namespace concert::kernels::cuda
