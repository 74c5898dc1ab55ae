// The reference attention of a decode step.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention_decode/attention_decode_op.h"
#include "kernels/cpu_element.h"

namespace concert::kernels {
namespace {

using Element = Eigen::bfloat16;

double Score(const AttentionDecodeArgs& args, const Element* q, const Element* k) {
  double sum = 0;
  for (uint32_t i = 0; i < args.head_dim; ++i) {
    sum += static_cast<double>(static_cast<float>(q[i])) * static_cast<float>(k[i]);
  }
  sum *= args.scale;
  return args.soft_cap == 0 ? sum : args.soft_cap * std::tanh(sum / args.soft_cap);
}

// Of one head over the tokens that begin at these elements of k and v. `scores` is scratch.
void Attend(const AttentionDecodeArgs& args, const std::vector<uint64_t>& tokens, const Element* q,
            std::vector<double>& scores, Element* out) {
  scores.clear();
  for (const uint64_t at : tokens) {
    scores.push_back(Score(args, q, RowAt<const Element>(args.cache.k, 1, at)));
  }
  std::array<double, 128> sums{};
  double total = 0;
  const double largest = scores.empty() ? 0 : *std::max_element(scores.begin(), scores.end());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const double weight = std::exp(scores[i] - largest);
    const auto* v = RowAt<const Element>(args.cache.v, 1, tokens[i]);
    total += weight;
    for (uint32_t j = 0; j < args.head_dim; ++j) sums[j] += weight * static_cast<float>(v[j]);
  }
  for (uint32_t j = 0; j < args.head_dim; ++j) {
    out[j] = static_cast<Element>(tokens.empty() ? 0.0f : static_cast<float>(sums[j] / total));
  }
}

}  // namespace

void ComputeAttentionDecode(std::span<const Op* const> parts) {
  const AttentionDecodeArgs& args = parts[0]->attention_decode;
  const uint32_t group = args.q_heads / args.kv_heads;
  std::vector<uint64_t> tokens;
  std::vector<double> scores;
  for (uint64_t row = 0; row < args.rows; ++row) {
    const uint32_t length = args.LengthOf(row);
    tokens.clear();
    for (uint32_t token = length - std::min(length, args.span_max()); token < length; ++token) {
      tokens.push_back(args.TokenAt(row, token));
    }
    for (uint32_t head = 0; head < args.q_heads; ++head) {
      const uint64_t columns = uint64_t{head} * args.head_dim;
      Attend(args, tokens, RowAt<const Element>(args.q, row, args.q_stride) + columns, scores,
             RowAt<Element>(args.out, row, args.out_stride) + columns);
      if (head % group + 1 < group) continue;
      for (uint64_t& at : tokens) at += args.cache.head_stride;
    }
  }
}

}  // namespace concert::kernels
