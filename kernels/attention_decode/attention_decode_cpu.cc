// The reference attention of a decode step.
#include <algorithm>
#include <vector>

#include "kernels/attention/attention_cpu.h"
#include "kernels/attention_decode/attention_decode_op.h"

namespace concert::kernels {

void ComputeAttentionDecode(std::span<const Op* const> parts) {
  const AttentionDecodeArgs& args = parts[0]->attention_decode;
  CpuAttention attention(args);
  std::vector<uint64_t> tokens;
  for (uint64_t row = 0; row < args.rows; ++row) {
    const uint32_t length = args.LengthOf(row);
    tokens.clear();
    for (uint32_t token = length - std::min(length, args.span_max()); token < length; ++token) {
      tokens.push_back(args.TokenAt(row, token));
    }
    attention.Attend(row, tokens);
  }
}

}  // namespace concert::kernels
