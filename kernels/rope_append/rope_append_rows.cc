#include "kernels/rope_append/rope_append_op.h"
#include "kernels/rows/row_args.h"

namespace concert::kernels::cuda {

uint64_t LowerRopeAppend(const Op& op, RowTask& task) {
  const RopeAppendArgs& args = op.rope_append;
  const KvCacheArgs& cache = args.cache;
  const uint32_t halves = args.rotary_dim / 2u | (args.head_dim - args.rotary_dim) / 2u;
  task.kind = RowKind::kRopeAppend;
  task.rope_append = args;
  task.SetElements(args.dtype, args.q | args.k | args.v,
                   cache.page_stride | cache.token_stride | cache.head_stride | args.q_stride |
                       args.k_stride | args.v_stride | halves);
  // As many elements of the cache as of the others are stored at a time, which may be other bytes.
  if ((cache.k | cache.v) % (task.width() * DtypeBytes(cache.dtype)) != 0) task.wide = false;
  const uint64_t heads = args.q_heads + 2u * args.kv_heads;
  return BlocksForPacks(task, args.rows * heads * (args.head_dim / 2u));
}

}  // namespace concert::kernels::cuda
