// Layer norm of rows, with a residual that is added first: see concert_layer_norm_body.
#ifndef CONCERT_KERNELS_LAYER_NORM_LAYER_NORM_OP_H_
#define CONCERT_KERNELS_LAYER_NORM_LAYER_NORM_OP_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/failure.h"
#include "kernels/op.h"
#include "kernels/op_table.h"

namespace concert::kernels {

// Rules beyond bounds:
// - rows and columns are 1 to kMaxRows and kMaxRowColumns; dtype is bf16, fp16 or fp32.
// - Without a residual its offset and stride are ignored, without a bias its offset. epsilon may be
//   any float.
// - A row stride is at least the row.
// - out may be x, with the same stride. Nothing else that is written may overlap another operand
//   (CheckOverlaps).
Failure AdmitLayerNorm(const concert_descriptor& descriptor, const AdmitContext& context, Op& op);

// It may read weight and bias early.
Accesses AccessesOfLayerNorm(const Op& op);

// One part. Sums in fp64.
void ComputeLayerNorm(std::span<const Op* const> parts);

inline constexpr uint8_t kLayerNormOperands[] = {
    offsetof(concert_layer_norm_body, x), offsetof(concert_layer_norm_body, residual),
    offsetof(concert_layer_norm_body, weight), offsetof(concert_layer_norm_body, bias),
    offsetof(concert_layer_norm_body, out)};  // OpKind::row_operands

namespace cuda {
struct RowTask;  // kernels/rows/row_args.h

// In builds with CUDA: what the row kernel needs of it, but for its place in a chain. Returns how
// many blocks could work on it. Sums are fp32.
uint64_t LowerLayerNorm(const Op& op, RowTask& task);
}  // namespace cuda

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_LAYER_NORM_LAYER_NORM_OP_H_
