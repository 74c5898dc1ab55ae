// The reference layer norm.
#include <cmath>

#include "kernels/layer_norm/layer_norm_op.h"
#include "kernels/norm/norm_cpu.h"

namespace concert::kernels {
namespace {

template <typename T>
void ComputeRows(const LayerNormArgs& args) {
  const T* weight = RowAt<T>(args.weight, 0, 0);
  const T* bias = args.bias == 0 ? nullptr : RowAt<T>(args.bias, 0, 0);
  for (uint64_t row = 0; row < args.rows; ++row) {
    const T* input = NormInput<T>(args, row);
    T* out = RowAt<T>(args.out, row, args.out_stride);
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < args.columns; ++i) sum += static_cast<float>(input[i]);
    const double mean = sum / args.columns;
    for (uint32_t i = 0; i < args.columns; ++i) {
      squares += std::pow(static_cast<double>(static_cast<float>(input[i])) - mean, 2);
    }
    const double scale = 1 / std::sqrt(squares / args.columns + args.epsilon);
    for (uint32_t i = 0; i < args.columns; ++i) {
      const double normal = (static_cast<double>(static_cast<float>(input[i])) - mean) * scale;
      const double shift = bias == nullptr ? 0 : static_cast<float>(bias[i]);
      out[i] = static_cast<T>(static_cast<float>(normal * static_cast<float>(weight[i]) + shift));
    }
  }
}

}  // namespace

void ComputeLayerNorm(std::span<const Op* const> parts) {
  const LayerNormArgs& args = parts[0]->layer_norm;
  WithElement(args.dtype, [&](auto zero) { ComputeRows<decltype(zero)>(args); });
}

}  // namespace concert::kernels
