#include "kernels/attention_decode/attention_chunks.h"

#include <algorithm>
#include <limits>

#include "kernels/attention_decode/attention_kernel_args.h"

namespace concert::kernels {
namespace {

// A chunk is worth what it costs to add it up: more tokens where there are blocks for all SMs
// without it (passes of eight and of four, 1,024 with 512 tokens and GQA with 1,024, one H200: 86.3
// and 112.7 us a layer instead of 92.5 and 116 with 512).
constexpr uint64_t kMinChunkTokens = 512, kMinChunkTokensOfMany = 1024;
// Blocks that are wanted in all: a few for each place there is, since rows differ in length and the
// last ones must not keep the GPU waiting.
constexpr uint64_t kWantedBlocks = 16 * cuda::kAttentionSms;

uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// What each chunk leaves of all rows' heads (AttentionPartials).
uint64_t BytesOfChunk(const AttentionDecodeArgs& op, size_t op_count) {
  return op_count * op.rows * op.q_heads *
         (op.head_dim * sizeof(float) + sizeof(cuda::SoftmaxState));
}

}  // namespace

AttentionChunks ChunksOf(const AttentionDecodeArgs& op, size_t op_count, uint64_t workspace_bytes) {
  const uint64_t span = op.span_max(), heads = op_count * op.rows * op.kv_heads;
  const uint64_t fit = workspace_bytes / BytesOfChunk(op, op_count);
  const uint64_t most = std::max<uint64_t>(1, std::min(fit, CeilDiv(kWantedBlocks, heads)));
  const uint64_t items_of_long = heads * CeilDiv(span, kMinChunkTokensOfMany);
  const uint64_t min_tokens =
      items_of_long >= cuda::kAttentionSms ? kMinChunkTokensOfMany : kMinChunkTokens;
  const uint64_t tokens = CeilDiv(span, std::min(most, CeilDiv(span, min_tokens)));
  return {.tokens = tokens, .count = CeilDiv(span, tokens)};
}

uint64_t WorkspaceBytesOfAttentionDecode(const Op& op) {
  const AttentionDecodeArgs& args = op.attention_decode;
  const uint64_t count = ChunksOf(args, 1, std::numeric_limits<uint64_t>::max()).count;
  return count == 1 ? 0 : count * BytesOfChunk(args, 1);
}

}  // namespace concert::kernels
