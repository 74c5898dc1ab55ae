// Attention of chunks of new tokens: see concert_attention_prefill_body.
#ifndef CONCERT_KERNELS_ATTENTION_PREFILL_ATTENTION_PREFILL_OP_H_
#define CONCERT_KERNELS_ATTENTION_PREFILL_ATTENTION_PREFILL_OP_H_

#include <span>

#include "absl/status/status.h"
#include "kernels/failure.h"
#include "kernels/op.h"
#include "kernels/op_table.h"

namespace concert::kernels {

// Rules beyond bounds:
// - tokens are 1 to 2^20, sequences 1 to 2^16; heads, dtype and the cache are as those of an
//   attention_decode of as many rows as there are sequences.
// - q, out and the cache begin at multiples of 16 bytes, and their strides are multiples of as
//   many: 8 elements in bf16, 16 in e4m3.
// - out may share memory with nothing else.
Failure AdmitAttentionPrefill(const concert_descriptor& descriptor, const AdmitContext& context,
                              Op& op);

Accesses AccessesOfAttentionPrefill(const Op& op);

// One part. Sums in fp64.
void ComputeAttentionPrefill(std::span<const Op* const> parts);

namespace cuda {
struct LaunchContext;  // kernels/cuda_api/launch_context.h

// One launch. Products of q and k are summed in fp32; probabilities are rounded to bf16 before they
// are multiplied by v, as elsewhere. All rows of a tile are multiplied by all tokens that one of
// them attends to, others' probabilities being 0: a token whose v is NaN or infinite makes NaN of
// them, too. That of attention_decode multiplies by what a row attends to alone.
absl::Status LaunchAttentionPrefill(LaunchContext& context, const Op& op);
}  // namespace cuda

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_ATTENTION_PREFILL_ATTENTION_PREFILL_OP_H_
