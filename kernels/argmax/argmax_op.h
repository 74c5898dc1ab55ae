// Where rows are largest: see concert_argmax_body.
#ifndef CONCERT_KERNELS_ARGMAX_ARGMAX_OP_H_
#define CONCERT_KERNELS_ARGMAX_ARGMAX_OP_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/failure.h"
#include "kernels/op.h"
#include "kernels/op_table.h"

namespace concert::kernels {

// Rules beyond bounds:
// - rows and columns are 1 to kMaxRows and kMaxRowColumns; dtype is bf16, fp16 or fp32; index_dtype
//   is int32 or int64.
// - A row stride is at least the row.
// - indices may not overlap x.
Failure AdmitArgmax(const concert_descriptor& descriptor, const AdmitContext& context, Op& op);

Accesses AccessesOfArgmax(const Op& op);

// One part.
void ComputeArgmax(std::span<const Op* const> parts);

inline constexpr uint8_t kArgmaxOperands[] = {
    offsetof(concert_argmax_body, x),
    offsetof(concert_argmax_body, indices)};  // OpKind::row_operands

namespace cuda {
struct RowTask;  // kernels/rows/row_args.h

// In builds with CUDA: what the row kernel needs of it, but for its place in a chain. Returns how
// many blocks could work on it.
uint64_t LowerArgmax(const Op& op, RowTask& task);
}  // namespace cuda

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_ARGMAX_ARGMAX_OP_H_
