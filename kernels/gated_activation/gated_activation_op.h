// An activation of one half of a row times the other: see concert_gated_activation_body.
#ifndef CONCERT_KERNELS_GATED_ACTIVATION_GATED_ACTIVATION_OP_H_
#define CONCERT_KERNELS_GATED_ACTIVATION_GATED_ACTIVATION_OP_H_

#include <span>

#include "absl/status/status.h"
#include "kernels/failure.h"
#include "kernels/op.h"
#include "kernels/op_table.h"

namespace concert::kernels {

// Rules beyond bounds:
// - rows and columns are 1 to kMaxRows and kMaxRowColumns; dtype is bf16, fp16 or fp32; activation
//   is silu or gelu.
// - A row stride is at least the row: 2 * columns elements of x, columns of out.
// - out may not overlap x; both count as their bounding range.
Failure AdmitGatedActivation(const concert_descriptor& descriptor, const AdmitContext& context,
                             Op& op);

Accesses AccessesOfGatedActivation(const Op& op);

// One part.
void ComputeGatedActivation(std::span<const Op* const> parts);

namespace cuda {
// In builds with CUDA.
absl::Status LaunchGatedActivation(LaunchContext& context, const Op& op);
}  // namespace cuda

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_GATED_ACTIVATION_GATED_ACTIVATION_OP_H_
