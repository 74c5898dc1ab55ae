// RMS norm of rows, with a residual that is added first: see concert_rms_norm_body.
#ifndef CONCERT_KERNELS_RMS_NORM_RMS_NORM_OP_H_
#define CONCERT_KERNELS_RMS_NORM_RMS_NORM_OP_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/failure.h"
#include "kernels/op.h"
#include "kernels/op_table.h"

namespace concert::kernels {

// Rules beyond bounds:
// - rows and columns are 1 to kMaxRows and kMaxRowColumns; dtype is bf16, fp16 or fp32.
// - Without a residual its offset and stride are ignored. epsilon may be any float.
// - A row stride is at least the row.
// - out may be x, with the same stride. Nothing else that is written may overlap another operand
//   (CheckOverlaps).
Failure AdmitRmsNorm(const concert_descriptor& descriptor, const AdmitContext& context, Op& op);

// It may read the weight early.
Accesses AccessesOfRmsNorm(const Op& op);

// One part. Sums of squares in fp64.
void ComputeRmsNorm(std::span<const Op* const> parts);

inline constexpr uint8_t kRmsNormOperands[] = {
    offsetof(concert_rms_norm_body, x), offsetof(concert_rms_norm_body, residual),
    offsetof(concert_rms_norm_body, weight),
    offsetof(concert_rms_norm_body, out)};  // OpKind::row_operands

namespace cuda {
struct RowTask;  // kernels/rows/row_args.h

// In builds with CUDA: what the row kernel needs of it, but for its place in a chain. Returns how
// many blocks could work on it. Sums of squares are fp32.
uint64_t LowerRmsNorm(const Op& op, RowTask& task);
}  // namespace cuda

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_RMS_NORM_RMS_NORM_OP_H_
