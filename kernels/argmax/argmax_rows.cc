#include "kernels/argmax/argmax_op.h"
#include "kernels/rows/row_args.h"

namespace concert::kernels::cuda {

uint64_t LowerArgmax(const Op& op, RowTask& task) {
  const ArgmaxArgs& args = op.argmax;
  task.kind = RowKind::kArgmax;
  task.argmax = args;
  task.SetElements(args.dtype, args.x, args.x_stride | args.columns);
  return args.rows;
}

}  // namespace concert::kernels::cuda
