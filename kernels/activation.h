// The activations in fp32, as the CPU computes them.
#ifndef CONCERT_KERNELS_ACTIVATION_H_
#define CONCERT_KERNELS_ACTIVATION_H_

#include <cmath>

#include "kernels/op.h"

namespace concert::kernels {

inline float Activate(Activation activation, float x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return x < 0 ? 0 : x;  // keeps NaN
    case Activation::kGelu: {
      // The tanh approximation of Hendrycks and Gimpel, arXiv:1606.08415, which cuBLASLt's epilogue
      // uses.
      constexpr float kSqrt2OverPi = 0.7978845608f;
      return 0.5f * x * (1 + std::tanh(kSqrt2OverPi * (x + 0.044715f * x * x * x)));
    }
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_ACTIVATION_H_
