// Attention of one token of each sequence: see concert_attention_decode_body.
#ifndef CONCERT_KERNELS_ATTENTION_DECODE_ATTENTION_DECODE_OP_H_
#define CONCERT_KERNELS_ATTENTION_DECODE_ATTENTION_DECODE_OP_H_

#include <span>

#include "absl/status/status.h"
#include "kernels/failure.h"
#include "kernels/op.h"
#include "kernels/op_table.h"

namespace concert::kernels {

// Rules beyond bounds:
// - rows are 1 to 2^16, kv_heads 1 to kMaxHeads, q_heads 1 to kMaxHeadGroup times and a multiple of
//   as many; head_dim is 64, 128 or 256; dtype is bf16, the cache's that or e4m3; of the
//   cache see CheckCacheDtype and ResolveKvCache.
// - q and the cache begin at multiples of 16 bytes, and their strides are multiples of as many:
//   8 elements in bf16, 16 in e4m3.
// - length_max is 1 to what a row's pages hold. Without a table there is a page for each row.
// - scale and soft_cap may be any float.
// - out may share memory with nothing else.
Failure AdmitAttentionDecode(const concert_descriptor& descriptor, const AdmitContext& context,
                             Op& op);

Accesses AccessesOfAttentionDecode(const Op& op);

// OpKind::goes_with: they are alike but for addresses. A cache that has fewer pages, say, would
// have indices clamped to those of the other.
bool AttentionDecodeGoesWith(const Op& op, const Op& other);

// One part. Sums in fp64.
void ComputeAttentionDecode(std::span<const Op* const> parts);

namespace cuda {
struct LaunchContext;  // kernels/cuda_api/launch_context.h

// Two launches where contexts are long and rows few. Products of q and k are summed in fp32;
// probabilities are rounded to bf16 before they are multiplied by v, as elsewhere.
absl::Status LaunchAttentionDecode(LaunchContext& context, const Op& op);
// OpKind::launch_together. REQUIRES: each AttentionDecodeGoesWith the first.
absl::Status LaunchAttentionDecodes(LaunchContext& context, std::span<const Op* const> ops,
                                    const uint32_t* there);
}  // namespace cuda

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_ATTENTION_DECODE_ATTENTION_DECODE_OP_H_
