// An activation of one half of a row times the other: see concert_gated_activation_body.
#ifndef CONCERT_KERNELS_GATED_ACTIVATION_GATED_ACTIVATION_OP_H_
#define CONCERT_KERNELS_GATED_ACTIVATION_GATED_ACTIVATION_OP_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/failure.h"
#include "kernels/op.h"
#include "kernels/op_table.h"

namespace concert::kernels {

// Rules beyond bounds:
// - rows and columns are 1 to kMaxRows and kMaxRowColumns; dtype is bf16, fp16 or fp32; activation
//   is silu or gelu.
// - A row stride is at least the row: 2 * columns elements of x, columns of out.
// - out may not overlap x (CheckOverlaps).
Failure AdmitGatedActivation(const concert_descriptor& descriptor, const AdmitContext& context,
                             Op& op);

Accesses AccessesOfGatedActivation(const Op& op);

// One part.
void ComputeGatedActivation(std::span<const Op* const> parts);

inline constexpr uint8_t kGatedActivationOperands[] = {
    offsetof(concert_gated_activation_body, x),
    offsetof(concert_gated_activation_body, out)};  // OpKind::row_operands

namespace cuda {
struct RowTask;  // kernels/rows/row_args.h

// In builds with CUDA: what the row kernel needs of it, but for its place in a chain. Returns how
// many blocks could work on it.
uint64_t LowerGatedActivation(const Op& op, RowTask& task);
}  // namespace cuda

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_GATED_ACTIVATION_GATED_ACTIVATION_OP_H_
