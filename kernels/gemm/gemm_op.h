// GEMM: D = act(alpha * A * W^T + beta * C + bias), one or a strided batch. Layouts as
// concert_gemm_body.
#ifndef CONCERT_KERNELS_GEMM_GEMM_OP_H_
#define CONCERT_KERNELS_GEMM_GEMM_OP_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/failure.h"
#include "kernels/op.h"
#include "kernels/op_table.h"

namespace concert::kernels {

// Beyond any real layer, and small enough that one op's tiles can be counted in 32-bit arithmetic
// per axis.
inline constexpr uint64_t kMaxGemmDimension = 1 << 24;  // m, n and k
inline constexpr uint64_t kMaxGemmBatch = 1 << 16;

// Rules beyond bounds:
// - beta == 0: C is not read; c, ldc and stride_c are ignored and c may be absent. Any other beta,
// NaN too,
//   needs C. bias is optional. alpha and beta may be any float.
// - A row stride is at least the row. A batch stride of an input may be anything, 0 included (one
// matrix for
//   the whole batch); matrices of D must not share elements: they lie one after the other
//   (stride_d >= (m - 1) * ldd + n) or row-interleaved (stride_d >= n, ldd >= (batch - 1) *
//   stride_d + n).
// - D may not overlap A, W, C or bias. Strided operands count as their bounding range, so an output
// that only
//   fills gaps of an input is refused too. Exception: C may be D exactly, with the same strides.
// - Offsets are multiples of the element size; more is not needed, though 16 bytes are faster.
Failure AdmitGemm(const concert_descriptor& descriptor, const AdmitContext& context, Op& op);

// C counts as one of the constants, even when it is D.
OpRanges RangesOfGemm(const Op& op);

// One part. fp32 accumulation in blocks, one rounding to the dtype (to nearest even).
void ComputeGemm(std::span<const Op* const> parts);

namespace cuda {
// In builds with CUDA. Enqueues op.gemm: cuBLASLt where it has a kernel, concert's own where it has
// none. The first time a problem is seen, cuBLASLt's heuristic is asked on the host (some 50 us);
// nothing waits for the GPU. fp32 accumulation; tf32 only where the op allows it.
absl::Status LaunchGemm(LaunchContext& context, const Op& op);
}  // namespace cuda

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_GEMM_GEMM_OP_H_
