// Elements of results that the CPU computes.
#ifndef CONCERT_KERNELS_CPU_ELEMENT_H_
#define CONCERT_KERNELS_CPU_ELEMENT_H_

#include <Eigen/Core>
#include <cstdint>

#include "kernels/op.h"

namespace concert::kernels {

// compute(T()) with the element type T of `dtype`, which is not fp8.
template <typename Compute>
void WithElement(Dtype dtype, const Compute& compute) {
  switch (dtype) {
    case Dtype::kBf16:
      return compute(Eigen::bfloat16());
    case Dtype::kFp16:
      return compute(Eigen::half());
    default:
      return compute(float());
  }
}

// Row `row` of a matrix of T.
template <typename T>
T* RowAt(Address matrix, uint64_t row, uint64_t stride) {
  return reinterpret_cast<T*>(matrix) + row * stride;
}

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_CPU_ELEMENT_H_
