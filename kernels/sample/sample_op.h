// Columns drawn at random by logits: see concert_sample_body.
#ifndef CONCERT_KERNELS_SAMPLE_SAMPLE_OP_H_
#define CONCERT_KERNELS_SAMPLE_SAMPLE_OP_H_

#include <span>

#include "kernels/failure.h"
#include "kernels/op.h"
#include "kernels/op_table.h"

namespace concert::kernels {

// Rules beyond bounds:
// - rows is 1 to kMaxRows, columns 1 to kMaxSampleColumns; dtype is bf16, fp16 or fp32; index_dtype
//   and, with steps, step_dtype are int32 or int64.
// - A row stride is at least the row.
// - Without an operand that may be none its offset is ignored. temperature, top_p, top_k and seed
//   may be anything, in the body and in operands.
// - indices may overlap nothing.
Failure AdmitSample(const concert_descriptor& descriptor, const AdmitContext& context, Op& op);

Accesses AccessesOfSample(const Op& op);

// One part. Draws what the kernel draws.
void ComputeSample(std::span<const Op* const> parts);

namespace cuda {
struct RowTask;  // kernels/rows/row_args.h

// In builds with CUDA: what the row kernel needs of it, but for its place in a chain. Returns how
// many blocks could work on it.
uint64_t LowerSample(const Op& op, RowTask& task);
}  // namespace cuda

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_SAMPLE_SAMPLE_OP_H_
