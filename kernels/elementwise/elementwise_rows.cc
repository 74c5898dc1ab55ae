#include "kernels/elementwise/elementwise_op.h"
#include "kernels/rows/row_args.h"

namespace concert::kernels::cuda {

uint64_t LowerElementwise(const Op& op, RowTask& task) {
  const ElementwiseArgs& args = op.elementwise;
  const uint64_t y_stride = args.y != 0 ? args.y_stride : 0;
  task.kind = RowKind::kElementwise;
  task.elementwise = args;
  task.SetElements(args.dtype, args.x | args.y | args.out,
                   args.x_stride | y_stride | args.out_stride | args.columns);
  // As many elements of out as of x are stored at a time, which may be other bytes.
  if (args.out % (task.width() * DtypeBytes(args.out_dtype)) != 0) task.wide = false;
  return BlocksForPacks(task, uint64_t{args.rows} * args.columns);
}

}  // namespace concert::kernels::cuda
