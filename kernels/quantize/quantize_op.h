// Rows in fp8 with a scale for each: see concert_quantize_body.
#ifndef CONCERT_KERNELS_QUANTIZE_QUANTIZE_OP_H_
#define CONCERT_KERNELS_QUANTIZE_QUANTIZE_OP_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/failure.h"
#include "kernels/op.h"
#include "kernels/op_table.h"

namespace concert::kernels {

// Rules beyond bounds:
// - rows and columns are 1 to kMaxRows and kMaxRowColumns; dtype is bf16, fp16 or fp32.
// - A row stride is at least the row.
// - out and scales may overlap nothing.
Failure AdmitQuantize(const concert_descriptor& descriptor, const AdmitContext& context, Op& op);

Accesses AccessesOfQuantize(const Op& op);

// One part.
void ComputeQuantize(std::span<const Op* const> parts);

inline constexpr uint8_t kQuantizeOperands[] = {
    offsetof(concert_quantize_body, x), offsetof(concert_quantize_body, out),
    offsetof(concert_quantize_body, scales)};  // OpKind::row_operands

namespace cuda {
struct RowTask;  // kernels/rows/row_args.h

// In builds with CUDA: what the row kernel needs of it, but for its place in a chain. Returns how
// many blocks could work on it.
uint64_t LowerQuantize(const Op& op, RowTask& task);
}  // namespace cuda

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_QUANTIZE_QUANTIZE_OP_H_
