#include "kernels/quantize/quantize_op.h"
#include "kernels/rows/row_args.h"

namespace concert::kernels::cuda {

uint64_t LowerQuantize(const Op& op, RowTask& task) {
  const QuantizeArgs& args = op.quantize;
  task.kind = RowKind::kQuantize;
  task.quantize = args;
  task.SetElements(args.dtype, args.x, args.x_stride | args.out_stride | args.columns);
  // As many elements of out as of x are stored at a time, which are other bytes.
  if (args.out % task.width() != 0) task.wide = false;
  return args.rows;
}

}  // namespace concert::kernels::cuda
