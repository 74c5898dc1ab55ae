// Addition, multiplication and casts: see concert_elementwise_body.
#ifndef CONCERT_KERNELS_ELEMENTWISE_ELEMENTWISE_OP_H_
#define CONCERT_KERNELS_ELEMENTWISE_ELEMENTWISE_OP_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/failure.h"
#include "kernels/op.h"
#include "kernels/op_table.h"

namespace concert::kernels {

// Rules beyond bounds:
// - rows and columns are 1 to kMaxRows and kMaxRowColumns; dtypes are bf16, fp16 or fp32.
// - A row stride is at least the row; that of y may be 0.
// - out may be x or y where it has the same rows; else it may overlap neither (CheckOverlaps).
Failure AdmitElementwise(const concert_descriptor& descriptor, const AdmitContext& context, Op& op);

Accesses AccessesOfElementwise(const Op& op);

// One part.
void ComputeElementwise(std::span<const Op* const> parts);

inline constexpr uint8_t kElementwiseOperands[] = {
    offsetof(concert_elementwise_body, x), offsetof(concert_elementwise_body, y),
    offsetof(concert_elementwise_body, out)};  // OpKind::row_operands

namespace cuda {
struct RowTask;  // kernels/rows/row_args.h

// In builds with CUDA: what the row kernel needs of it, but for its place in a chain. Returns how
// many blocks could work on it.
uint64_t LowerElementwise(const Op& op, RowTask& task);
}  // namespace cuda

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_ELEMENTWISE_ELEMENTWISE_OP_H_
