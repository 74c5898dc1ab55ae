// The reference argmax.
#include <cmath>

#include "kernels/argmax/argmax_op.h"
#include "kernels/cpu_element.h"

namespace concert::kernels {
namespace {

template <typename T>
uint32_t FirstOfLargest(const T* row, uint32_t columns) {
  uint32_t largest = 0;
  for (uint32_t i = 0; i < columns; ++i) {
    const auto value = static_cast<float>(row[i]);
    if (std::isnan(value)) return i;
    if (value > static_cast<float>(row[largest])) largest = i;
  }
  return largest;
}

}  // namespace

void ComputeArgmax(std::span<const Op* const> parts) {
  const ArgmaxArgs& args = parts[0]->argmax;
  WithElement(args.dtype, [&](auto zero) {
    for (uint64_t row = 0; row < args.rows; ++row) {
      const auto* x = RowAt<decltype(zero)>(args.x, row, args.x_stride);
      StoreIndex(args.indices, row, args.index_type, FirstOfLargest(x, args.columns));
    }
  });
}

}  // namespace concert::kernels
