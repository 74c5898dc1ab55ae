// The reference RMS norm.
#include <cmath>

#include "kernels/cpu_element.h"
#include "kernels/rms_norm/rms_norm_op.h"

namespace concert::kernels {
namespace {

// Adds x to the residual, if there is one. What is normalised.
template <typename T>
const T* InputRow(const RmsNormArgs& args, uint64_t row) {
  const T* x = RowAt<T>(args.x, row, args.x_stride);
  if (args.residual == 0) return x;
  T* residual = RowAt<T>(args.residual, row, args.residual_stride);
  for (uint32_t i = 0; i < args.columns; ++i) {
    residual[i] = static_cast<T>(static_cast<float>(x[i]) + static_cast<float>(residual[i]));
  }
  return residual;
}

template <typename T>
void ComputeRows(const RmsNormArgs& args) {
  const T* weight = reinterpret_cast<const T*>(args.weight);
  for (uint64_t row = 0; row < args.rows; ++row) {
    const T* input = InputRow<T>(args, row);
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
