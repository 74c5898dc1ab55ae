// The reference gated activation.
#include "kernels/activation.h"
#include "kernels/cpu_element.h"
#include "kernels/gated_activation/gated_activation_op.h"

namespace concert::kernels {
namespace {

template <typename T>
void ComputeRows(const GatedActivationArgs& args) {
  // Of neighbours in gate and in up.
  const uint64_t step = args.interleaved ? 2 : 1;
  for (uint64_t row = 0; row < args.rows; ++row) {
    const T* gate = RowAt<T>(args.x, row, args.x_stride);
    const T* up = gate + (args.interleaved ? 1 : args.columns);
    T* out = RowAt<T>(args.out, row, args.out_stride);
    for (uint64_t i = 0; i < args.columns; ++i) {
      out[i] = static_cast<T>(Activate(args.activation, static_cast<float>(gate[i * step])) *
                              static_cast<float>(up[i * step]));
    }
  }
}

}  // namespace

void ComputeGatedActivation(std::span<const Op* const> parts) {
  const GatedActivationArgs& args = parts[0]->gated_activation;
  WithElement(args.dtype, [&](auto zero) { ComputeRows<decltype(zero)>(args); });
}

}  // namespace concert::kernels
