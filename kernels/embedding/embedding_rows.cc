#include "kernels/embedding/embedding_op.h"
#include "kernels/rows/row_args.h"

namespace concert::kernels::cuda {

uint64_t LowerEmbedding(const Op& op, RowTask& task) {
  const EmbeddingArgs& args = op.embedding;
  task.kind = RowKind::kEmbedding;
  task.embedding = args;
  task.SetElements(args.dtype, args.table | args.out,
                   args.table_stride | args.out_stride | args.columns);
  return BlocksForPacks(task, uint64_t{args.rows} * args.columns);
}

}  // namespace concert::kernels::cuda
