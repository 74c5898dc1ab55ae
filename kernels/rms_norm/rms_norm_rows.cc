#include "kernels/rms_norm/rms_norm_op.h"
#include "kernels/rows/row_args.h"

namespace concert::kernels::cuda {

uint64_t LowerRmsNorm(const Op& op, RowTask& task) {
  const RmsNormArgs& args = op.rms_norm;
  const uint64_t residual_stride = args.residual != 0 ? args.residual_stride : 0;
  task.kind = RowKind::kRmsNorm;
  task.rms_norm = args;
  task.SetElements(args.dtype, args.x | args.residual | args.weight | args.out,
                   args.x_stride | args.out_stride | residual_stride | args.columns);
  return args.rows;
}

}  // namespace concert::kernels::cuda
