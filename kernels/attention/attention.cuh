// What the kernels of attention have in common.
#ifndef CONCERT_KERNELS_ATTENTION_ATTENTION_CUH_
#define CONCERT_KERNELS_ATTENTION_ATTENTION_CUH_

#include <cuda_bf16.h>

#include <cstdint>

namespace concert::kernels::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr unsigned kAll = ~0u;  // lanes of a warp

__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ATTENTION_ATTENTION_CUH_
