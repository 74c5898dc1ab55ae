// What the kernels of attention have in common.
#ifndef CONCERT_KERNELS_ATTENTION_ATTENTION_CUH_
#define CONCERT_KERNELS_ATTENTION_ATTENTION_CUH_

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "kernels/exp2.cuh"

namespace concert::kernels::cuda {

inline constexpr unsigned kAll = ~0u;  // lanes of a warp

__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Elements of a cache in e4m3.
using E4m3 = __nv_fp8_e4m3;

// Two of them in bf16, which holds all there are exactly; emulated before sm_89.
__device__ __forceinline__ uint32_t WidenPair(uint32_t low_half) {
  const __half2_raw halves =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(low_half), __NV_E4M3);
  const float2 pair = __half22float2(halves);
  return PackBf16(pair.x, pair.y);
}

// Eight.
__device__ __forceinline__ uint4 Widen(uint32_t low, uint32_t high) {
  return {WidenPair(low), WidenPair(low >> 16), WidenPair(high), WidenPair(high >> 16)};
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ATTENTION_ATTENTION_CUH_
