// Rotary embedding of q and k, and k and v into the cache: see concert_rope_append_body.
#ifndef CONCERT_KERNELS_ROPE_APPEND_ROPE_APPEND_OP_H_
#define CONCERT_KERNELS_ROPE_APPEND_ROPE_APPEND_OP_H_

#include <span>

#include "kernels/failure.h"
#include "kernels/op.h"
#include "kernels/op_table.h"

namespace concert::kernels {

// Rules beyond bounds:
// - rows and positions_max are 1 to kMaxRows, heads 1 to kMaxHeads, head_dim 2 to kMaxHeadDim and
//   rotary_dim 2 to head_dim, both even; of the cache see CheckCacheDtype and ResolveKvCache.
//   dtype is bf16, fp16 or fp32; indices are int32 or int64.
// - A row stride is at least the row.
// - q and the cache may share memory with nothing else; parts of one matrix do not.
Failure AdmitRopeAppend(const concert_descriptor& descriptor, const AdmitContext& context, Op& op);

// It may read cos_sin early. Of the cache it counts as writing all pages.
Accesses AccessesOfRopeAppend(const Op& op);

// One part.
void ComputeRopeAppend(std::span<const Op* const> parts);

namespace cuda {
struct RowTask;  // kernels/rows/row_args.h

// In builds with CUDA: what the row kernel needs of it, but for its place in a chain. Returns how
// many blocks could work on it.
uint64_t LowerRopeAppend(const Op& op, RowTask& task);
}  // namespace cuda

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_ROPE_APPEND_ROPE_APPEND_OP_H_
