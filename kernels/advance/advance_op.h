// Counters that take one step: see concert_advance_body.
#ifndef CONCERT_KERNELS_ADVANCE_ADVANCE_OP_H_
#define CONCERT_KERNELS_ADVANCE_ADVANCE_OP_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/failure.h"
#include "kernels/op.h"
#include "kernels/op_table.h"

namespace concert::kernels {

// Rules beyond bounds:
// - rows is 1 to kMaxRows, counter_max 1 to what an int32 holds; dtypes are int32 or int64.
// - Without slots their offset and dtype are ignored.
// - counters may not overlap slots.
Failure AdmitAdvance(const concert_descriptor& descriptor, const AdmitContext& context, Op& op);

Accesses AccessesOfAdvance(const Op& op);

// One part.
void ComputeAdvance(std::span<const Op* const> parts);

inline constexpr uint8_t kAdvanceOperands[] = {
    offsetof(concert_advance_body, counters),
    offsetof(concert_advance_body, slots)};  // OpKind::row_operands

namespace cuda {
struct RowTask;  // kernels/rows/row_args.h

// In builds with CUDA: what the row kernel needs of it, but for its place in a chain. Returns how
// many blocks could work on it.
uint64_t LowerAdvance(const Op& op, RowTask& task);
}  // namespace cuda

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_ADVANCE_ADVANCE_OP_H_
