// The reference RMS norm.
#include <cmath>

#include "kernels/norm/norm_cpu.h"
#include "kernels/rms_norm/rms_norm_op.h"

namespace concert::kernels {
namespace {

template <typename T>
void ComputeRows(const RmsNormArgs& args) {
  const T* weight = reinterpret_cast<const T*>(args.weight);
  for (uint64_t row = 0; row < args.rows; ++row) {
    const T* input = NormInput<T>(args, row);
    T* out = RowAt<T>(args.out, row, args.out_stride);
    double squares = 0;
    for (uint32_t i = 0; i < args.columns; ++i) {
      const double value = static_cast<float>(input[i]);
      squares += value * value;
    }
    const auto mean = static_cast<float>(squares / args.columns);
    const float scale = 1 / std::sqrt(mean + args.epsilon);
    for (uint32_t i = 0; i < args.columns; ++i) {
      float normal = static_cast<float>(input[i]) * scale;
      if (args.cast_first) normal = static_cast<float>(static_cast<T>(normal));
      out[i] = static_cast<T>(normal * static_cast<float>(weight[i]));
    }
  }
}

}  // namespace

void ComputeRmsNorm(std::span<const Op* const> parts) {
  const RmsNormArgs& args = parts[0]->rms_norm;
  WithElement(args.dtype, [&](auto zero) { ComputeRows<decltype(zero)>(args); });
}

}  // namespace concert::kernels
