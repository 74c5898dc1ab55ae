// The reference attention of chunks of new tokens.
#include <algorithm>
#include <span>
#include <vector>

#include "kernels/attention/attention_cpu.h"
#include "kernels/attention_prefill/attention_prefill_op.h"

namespace concert::kernels {

void ComputeAttentionPrefill(std::span<const Op* const> parts) {
  const AttentionPrefillArgs& args = parts[0]->attention_prefill;
  CpuAttention attention(args.attention);
  const int64_t window = args.attention.span_max();
  std::vector<uint64_t> tokens;
  for (uint64_t sequence = 0; sequence < args.attention.rows; ++sequence) {
    const int64_t begin = args.StartOf(sequence), end = args.StartOf(sequence + 1);
    const int64_t length = args.attention.LengthOf(sequence);
    tokens.clear();
    for (uint32_t token = 0; begin < end && token < length; ++token) {
      tokens.push_back(args.attention.TokenAt(sequence, token));
    }
    for (int64_t row = begin; row < end; ++row) {
      const int64_t visible = std::max<int64_t>(0, length - (end - row) + 1);
      const int64_t attended = std::min(visible, window);
      attention.Attend(static_cast<uint64_t>(row),
                       std::span(tokens).subspan(static_cast<size_t>(visible - attended),
                                                 static_cast<size_t>(attended)));
    }
  }
}

}  // namespace concert::kernels
