// GEMM: D = act(alpha * A * W^T + beta * C + bias), or act(alpha * A * W^T + bias) + beta * C, one
// or a strided batch. Layouts as concert_gemm_body.
//
// fp8: A and W are e4m3, C, D and bias bf16 or fp16. D = act(alpha * (sA[i] * sW[j] * A * W^T) +
// beta * C + bias) with fp32 scales, one per tensor or one per row of A and of W, in memory that
// the GPU reads when the GEMM runs. A batch has one set of scales, which all its members use. Other
// dtypes may have the same of A, one per row.
#ifndef CONCERT_KERNELS_GEMM_GEMM_OP_H_
#define CONCERT_KERNELS_GEMM_GEMM_OP_H_

#include <cstddef>
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
//   NaN too, needs C. bias is optional. alpha and beta may be any float.
// - C as a residual needs a beta that is not 0. Without an activation it is what it is before one,
//   and GemmArgs do not tell them apart.
// - A gated product has an even n, an activation that is silu or gelu, and no C: beta is 0. D has
//   n / 2 columns. How gates lie is said of no other.
// - d_dtype: bf16 or fp16 for fp8, else 0 or dtype.
// - Only fp8 has scales of W or one for all of A. Without a buffer of scales their offset is
//   ignored and the scale is 1; one per row needs the buffer. Scales begin at a multiple of 4 bytes
//   and may be any float.
// - A row stride is at least the row. A batch stride of an input may be anything, 0 included (one
//   matrix for the whole batch); matrices of D must not share elements: they lie one after the
//   other (stride_d >= (m - 1) * ldd + n) or row-interleaved (stride_d >= n, ldd >= (batch - 1) *
//   stride_d + n), with D's columns for n.
// - D may not overlap A, W, C, bias or scales. Strided operands count as their bounding range, so
//   an output that only fills gaps of an input is refused too. Exception: C may be D exactly, with
//   the same strides.
// - Offsets are multiples of the element size; more is not needed, though 16 bytes are faster.
//
// work.carrier, whether a group launch can carry the op: batch is 1; dtype is bf16, fp16 or fp8;
// and the addresses and row strides of A and W are multiples of kGroupAlignment bytes, the strides
// less than kGroupMaxRowBytes, or their copies, work.repack_bytes, are at most
// kGroupRepackBytes (kernels/group/group_operand.h); and no C is added behind an activation, nor is
// the product gated, which the group kernel cannot do. Nothing else matters: any m, n and k,
// activation, alpha and beta; C, D, bias and scales wherever admission takes them.
Failure AdmitGemm(const concert_descriptor& descriptor, const AdmitContext& context, Op& op);

// It may read W early, and nothing else: C, bias and scales are read after A.
Accesses AccessesOfGemm(const Op& op);

// OpKind::workspace_bytes: as much as the library would have.
inline uint64_t WorkspaceBytesOfGemm(const Op&) { return kMostWorkspaceBytes; }

// One part. fp32 accumulation in blocks, one rounding to D's dtype (to nearest even). e4m3 is
// decoded exactly.
void ComputeGemm(std::span<const Op* const> parts);

inline constexpr uint8_t kGemmOperands[] = {
    offsetof(concert_gemm_body, a), offsetof(concert_gemm_body, w), offsetof(concert_gemm_body, c),
    offsetof(concert_gemm_body, d), offsetof(concert_gemm_body, bias)};  // OpKind::row_operands

namespace cuda {
// In builds with CUDA. Enqueues op.gemm: cuBLASLt where it has a kernel, concert's own where it has
// none. What no epilogue of cuBLASLt's ends (GemmArgs::EndsPlainly) is made of bands of rows: the
// library leaves their sums in fp32 in the context's workspace, and an epilogue kernel makes D of
// them; concert's own kernel does it all where they do not fit, or in a batch. The first time a
// problem is seen, cuBLASLt's heuristic is asked on the host (some 50 us); nothing waits for the
// GPU. fp32 accumulation; tf32 only where the op allows it. fp8 without cuBLASLt's fast
// accumulation, which keeps partial sums in the tensor cores' narrower registers: what a client
// asks for is fp32, within 5e-2 (relative, Frobenius) of exact arithmetic on the quantised
// operands.
//
// cuBLASLt takes fp8 operands on Ada and later whose addresses and rows are multiples of 16 bytes,
// with one scale per tensor, or, on Hopper from cuBLAS 12.9 on, one per row of both A and W, not in
// a batch. The rest is concert's own kernel's, on CUDA cores.
absl::Status LaunchGemm(LaunchContext& context, const Op& op);
}  // namespace cuda

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_GEMM_GEMM_OP_H_
