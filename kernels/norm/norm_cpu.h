// What norms on the CPU have in common.
#ifndef CONCERT_KERNELS_NORM_NORM_CPU_H_
#define CONCERT_KERNELS_NORM_NORM_CPU_H_

#include <cstdint>

#include "kernels/cpu_element.h"

namespace concert::kernels {

// Adds x to the residual, if there is one. What is normalised.
template <typename T, typename Args>
const T* NormInput(const Args& args, uint64_t row) {
  const T* x = RowAt<T>(args.x, row, args.x_stride);
  if (args.residual == 0) return x;
  T* residual = RowAt<T>(args.residual, row, args.residual_stride);
  for (uint32_t i = 0; i < args.columns; ++i) {
    residual[i] = static_cast<T>(static_cast<float>(x[i]) + static_cast<float>(residual[i]));
  }
  return residual;
}

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_NORM_NORM_CPU_H_
