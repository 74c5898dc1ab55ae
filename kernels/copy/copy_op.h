// Copy: `bytes` bytes from src to dst, by the GPU's copy engines.
#ifndef CONCERT_KERNELS_COPY_COPY_OP_H_
#define CONCERT_KERNELS_COPY_COPY_OP_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/failure.h"
#include "kernels/op.h"
#include "kernels/op_table.h"

namespace concert::kernels {

inline constexpr uint64_t kMaxCopyBytes = uint64_t{1} << 40;

// Any byte offsets. src and dst may not overlap. Both lie on the ring's GPU or in pool memory.
Failure AdmitCopy(const concert_descriptor& descriptor, const AdmitContext& context, Op& op);

Accesses AccessesOfCopy(const Op& op);

// One part.
void ComputeCopy(std::span<const Op* const> parts);

inline constexpr uint8_t kCopyOperands[] = {
    offsetof(concert_copy_body, src), offsetof(concert_copy_body, dst)};  // OpKind::row_operands
inline constexpr RowCount kCopyRowCount = {offsetof(concert_copy_body, bytes), 8};

namespace cuda {
// In builds with CUDA. Enqueues op.copy. Between GPUs a copy engine moves the bytes; within one GPU
// CUDA uses its SMs.
absl::Status LaunchCopy(LaunchContext& context, const Op& op);
}  // namespace cuda

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_COPY_COPY_OP_H_
