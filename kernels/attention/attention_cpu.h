// What attention on the CPU has in common.
#ifndef CONCERT_KERNELS_ATTENTION_ATTENTION_CPU_H_
#define CONCERT_KERNELS_ATTENTION_ATTENTION_CPU_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention_decode/attention_decode_args.h"
#include "kernels/cpu_element.h"
#include "kernels/gemm/e4m3.h"

namespace concert::kernels {

class CpuAttention {
 public:
  // `args` outlives this.
  explicit CpuAttention(const AttentionDecodeArgs& args) : args_(args) {}

  // All heads of a row of q over the tokens whose head 0 begins at these elements of k and v; of no
  // token zeros.
  void Attend(uint64_t row, std::span<const uint64_t> tokens) {
    if (args_.cache.dtype == Dtype::kFp8E4m3) {
      AttendTo<E4m3>(row, tokens);
    } else {
      AttendTo<Element>(row, tokens);
    }
  }

 private:
  using Element = Eigen::bfloat16;
  struct E4m3 {
    uint8_t bits;
    explicit operator float() const { return DecodeE4m3(bits); }
  };

  // `Cached`: an element of the cache.
  template <typename Cached>
  void AttendTo(uint64_t row, std::span<const uint64_t> tokens) {
    const uint32_t group = args_.q_heads / args_.kv_heads;
    for (uint32_t head = 0; head < args_.q_heads; ++head) {
      const uint64_t columns = uint64_t{head} * args_.head_dim;
      Attend<Cached>(tokens, uint64_t{head / group} * args_.cache.head_stride,
                     RowAt<const Element>(args_.q, row, args_.q_stride) + columns,
                     RowAt<Element>(args_.out, row, args_.out_stride) + columns);
    }
  }

  template <typename Cached>
  double Score(const Element* q, const Cached* k) const {
    double sum = 0;
    for (uint32_t i = 0; i < args_.head_dim; ++i) {
      sum += static_cast<double>(static_cast<float>(q[i])) * static_cast<float>(k[i]);
    }
    sum *= args_.scale;
    return args_.soft_cap == 0 ? sum : args_.soft_cap * std::tanh(sum / args_.soft_cap);
  }

  // `head_at`: where the head begins in a token.
  template <typename Cached>
  void Attend(std::span<const uint64_t> tokens, uint64_t head_at, const Element* q, Element* out) {
    scores_.clear();
    for (const uint64_t at : tokens) {
      scores_.push_back(Score(q, RowAt<const Cached>(args_.cache.k, 1, at + head_at)));
    }
    std::array<double, kMaxAttentionHeadDim> sums{};
    double total = 0;
    const double largest = scores_.empty() ? 0 : *std::max_element(scores_.begin(), scores_.end());
    for (size_t i = 0; i < tokens.size(); ++i) {
      const double weight = std::exp(scores_[i] - largest);
      const auto* v = RowAt<const Cached>(args_.cache.v, 1, tokens[i] + head_at);
      total += weight;
      for (uint32_t j = 0; j < args_.head_dim; ++j) sums[j] += weight * static_cast<float>(v[j]);
    }
    for (uint32_t j = 0; j < args_.head_dim; ++j) {
      const double value = tokens.empty() ? 0 : sums[j] / total * args_.cache.v_scale;
      out[j] = static_cast<Element>(static_cast<float>(value));
    }
  }

  const AttentionDecodeArgs& args_;
  std::vector<double> scores_;  // scratch
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_ATTENTION_ATTENTION_CPU_H_
