#include "kernels/layer_norm/layer_norm_op.h"
#include "kernels/rows/row_args.h"

namespace concert::kernels::cuda {

uint64_t LowerLayerNorm(const Op& op, RowTask& task) {
  const LayerNormArgs& args = op.layer_norm;
  const uint64_t residual_stride = args.residual != 0 ? args.residual_stride : 0;
  task.kind = RowKind::kLayerNorm;
  task.layer_norm = args;
  task.SetElements(args.dtype, args.x | args.residual | args.weight | args.bias | args.out,
                   args.x_stride | args.out_stride | residual_stride | args.columns);
  return args.rows;
}

}  // namespace concert::kernels::cuda
