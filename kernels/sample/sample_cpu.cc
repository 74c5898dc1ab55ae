// The reference sampling: weights and random numbers as the kernel's, thresholds by sorting.
#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/cpu_element.h"
#include "kernels/sample/draw.h"
#include "kernels/sample/sample_op.h"

namespace concert::kernels {
namespace {

struct Logit {
  uint32_t order;
  uint64_t weight;
};

bool IsHigher(const Logit& a, const Logit& b) { return a.order > b.order; }

// The least order of what may be drawn.
uint32_t LeastOrder(std::vector<Logit> logits, const Draw& draw) {
  uint32_t least = 0;
  std::sort(logits.begin(), logits.end(), IsHigher);
  if (draw.top_k != 0) {
    least = logits[draw.top_k - 1].order;
    logits.erase(std::find_if(logits.begin(), logits.end(),
                              [&](const Logit& logit) { return logit.order < least; }),
                 logits.end());
  }
  if (draw.top_p != 0) {
    uint64_t total = 0, reached = 0;
    for (const Logit& logit : logits) total += logit.weight;
    const uint64_t target = TopPTarget(draw, total);
    for (const Logit& logit : logits) {
      least = logit.order;
      reached += logit.weight;
      if (reached >= target) break;
    }
  }
  return least;
}

uint32_t DrawFrom(const std::vector<Logit>& logits, uint32_t least, uint64_t random) {
  uint64_t total = 0;
  for (const Logit& logit : logits) total += logit.order >= least ? logit.weight : 0;
  uint64_t rest = MultiplyHigh(total, random);
  for (uint32_t i = 0; i < logits.size(); ++i) {
    if (logits[i].order < least) continue;
    if (rest < logits[i].weight) return i;
    rest -= logits[i].weight;
  }
  return static_cast<uint32_t>(logits.size() - 1);  // a client changed them
}

template <typename T>
uint32_t SampleRow(const SampleArgs& args, uint64_t row) {
  const Draw draw = DrawOf(args, row);
  const T* x = RowAt<T>(args.x, row, args.x_stride);
  // Copied, since the client may change them.
  std::vector<float> values(x, x + args.columns);
  std::vector<Logit> logits(args.columns);
  uint32_t largest = 0;
  for (uint32_t i = 0; i < args.columns; ++i) {
    logits[i].order = OrderOf(values[i]);
    if (logits[i].order > logits[largest].order) largest = i;
  }
  if (!IsDrawn(draw, logits[largest].order)) return largest;
  const Weights weights(draw, logits[largest].order);
  for (uint32_t i = 0; i < args.columns; ++i) logits[i].weight = weights(values[i]);
  const bool all = draw.top_k == 0 && draw.top_p == 0;
  return DrawFrom(logits, all ? 0 : LeastOrder(logits, draw), draw.random);
}

}  // namespace

void ComputeSample(std::span<const Op* const> parts) {
  const SampleArgs& args = parts[0]->sample;
  WithElement(args.dtype, [&](auto zero) {
    for (uint64_t row = 0; row < args.rows; ++row) {
      StoreIndex(args.indices, row, args.index_type, SampleRow<decltype(zero)>(args, row));
    }
  });
}

}  // namespace concert::kernels
