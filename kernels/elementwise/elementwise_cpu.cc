// The reference of what is done to each element.
#include "kernels/cpu_element.h"
#include "kernels/elementwise/elementwise_op.h"

namespace concert::kernels {
namespace {

template <typename T, typename Out>
void ComputeRows(const ElementwiseArgs& args) {
  for (uint64_t row = 0; row < args.rows; ++row) {
    const T* x = RowAt<T>(args.x, row, args.x_stride);
    const T* y = args.y == 0 ? nullptr : RowAt<T>(args.y, row, args.y_stride);
    Out* out = RowAt<Out>(args.out, row, args.out_stride);
    for (uint32_t i = 0; i < args.columns; ++i) {
      const float other = y == nullptr ? 0 : static_cast<float>(y[i]);
      out[i] = static_cast<Out>(Apply(args.function, static_cast<float>(x[i]), other));
    }
  }
}

}  // namespace

void ComputeElementwise(std::span<const Op* const> parts) {
  const ElementwiseArgs& args = parts[0]->elementwise;
  WithElement(args.dtype, [&](auto in) {
    WithElement(args.out_dtype, [&](auto out) { ComputeRows<decltype(in), decltype(out)>(args); });
  });
}

}  // namespace concert::kernels
