// The reference quantisation.
#include <algorithm>

#include "kernels/cpu_element.h"
#include "kernels/quantize/quantize_op.h"

namespace concert::kernels {
namespace {

template <typename T>
void QuantizeRows(const QuantizeArgs& args) {
  for (uint64_t row = 0; row < args.rows; ++row) {
    const T* x = RowAt<T>(args.x, row, args.x_stride);
    auto* out = RowAt<uint8_t>(args.out, row, args.out_stride);
    uint32_t largest = 0;
    for (uint32_t i = 0; i < args.columns; ++i) {
      largest = std::max(largest, MagnitudeOf(static_cast<float>(x[i])));
    }
    const float scale = ScaleOf(largest);
    *RowAt<float>(args.scales, row, 1) = scale;
    for (uint32_t i = 0; i < args.columns; ++i) out[i] = E4m3Of(static_cast<float>(x[i]) / scale);
  }
}

}  // namespace

void ComputeQuantize(std::span<const Op* const> parts) {
  const QuantizeArgs& args = parts[0]->quantize;
  WithElement(args.dtype, [&](auto zero) { QuantizeRows<decltype(zero)>(args); });
}

}  // namespace concert::kernels
