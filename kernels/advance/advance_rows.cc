#include "kernels/advance/advance_op.h"
#include "kernels/rows/row_args.h"

namespace concert::kernels::cuda {

uint64_t LowerAdvance(const Op& op, RowTask& task) {
  const AdvanceArgs& args = op.advance;
  task.kind = RowKind::kAdvance;
  task.advance = args;
  task.SetElements(op.work.dtype, args.counters, /*columns=*/1);
  return BlocksForPacks(task, args.rows);
}

}  // namespace concert::kernels::cuda
