#include "kernels/rows/row_args.h"
#include "kernels/sample/sample_op.h"

namespace concert::kernels::cuda {

uint64_t LowerSample(const Op& op, RowTask& task) {
  const SampleArgs& args = op.sample;
  task.kind = RowKind::kSample;
  task.sample = args;
  task.SetElements(args.dtype, args.x, args.x_stride | args.columns);
  return args.rows;
}

}  // namespace concert::kernels::cuda
