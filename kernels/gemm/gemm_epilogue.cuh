// What concert's own GEMM kernels make of a sum of products. The order stands at concert_gemm_body.
#ifndef CONCERT_KERNELS_GEMM_GEMM_EPILOGUE_CUH_
#define CONCERT_KERNELS_GEMM_GEMM_EPILOGUE_CUH_

#include "kernels/activation.cuh"
#include "kernels/cuda_api/element.cuh"
#include "kernels/gemm/gemm_args.h"

namespace concert::kernels::cuda {

template <typename T>
__device__ T* At(Address address) {
  return reinterpret_cast<T*>(address);
}

// Of one member of the batch. T: of C, D and bias.
template <typename T>
class GemmEpilogue {
 public:
  __device__ GemmEpilogue(const GemmArgs& args, uint64_t member)
      : args_(args),
        c_(At<const T>(args.c) + member * args.stride_c),
        d_(At<T>(args.d) + member * args.stride_d) {}

  // What the activation of element (row, column) of the product gets.
  __device__ float Before(float sum, uint64_t row, uint64_t column) const {
    const float a_scale = ScaleOf(args_.a_scales, args_.a_scales_per_row, row);
    const float w_scale = ScaleOf(args_.w_scales, args_.w_scales_per_row, column);
    float x = args_.alpha * (sum * a_scale * w_scale);
    if (args_.beta != 0.0f && !args_.residual) x += Addend(row, column);
    if (args_.bias != 0) x += ToFloat(At<const T>(args_.bias)[column]);
    return x;
  }

  // Of a gated product: which of its columns become column `column` of D.
  __device__ uint64_t GateOf(uint64_t column) const {
    return args_.interleaved ? 2 * column : column;
  }
  __device__ uint64_t UpOf(uint64_t column) const {
    return args_.interleaved ? 2 * column + 1 : column + args_.n / 2;
  }
  // Element (row, column) of D, of what Before() has returned of both.
  __device__ void StoreGated(float gate, float up, uint64_t row, uint64_t column) const {
    const float y = Activate(gate, static_cast<uint32_t>(args_.activation)) * up;
    d_[row * args_.ldd + column] = FromFloat<T>(y);
  }

  // Element (row, column) of D, of `x`, which Before() has returned.
  __device__ void Store(float x, uint64_t row, uint64_t column) const {
    float y = Activate(x, static_cast<uint32_t>(args_.activation));
    if (args_.residual) y += Addend(row, column);
    d_[row * args_.ldd + column] = FromFloat<T>(y);
  }

 private:
  __device__ static float ScaleOf(Address scales, bool per_row, uint64_t row) {
    return scales == 0 ? 1.0f : At<const float>(scales)[per_row ? row : 0];
  }
  __device__ float Addend(uint64_t row, uint64_t column) const {
    return args_.beta * ToFloat(c_[row * args_.ldc + column]);
  }

  const GemmArgs& args_;
  const T* const c_;  // may be d_
  T* const d_;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GEMM_GEMM_EPILOGUE_CUH_
