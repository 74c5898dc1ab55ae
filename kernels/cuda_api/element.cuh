// Elements in device code: all computed with in fp32 and rounded once to nearest even. fp8 is only
// read.
#ifndef CONCERT_KERNELS_CUDA_API_ELEMENT_CUH_
#define CONCERT_KERNELS_CUDA_API_ELEMENT_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

namespace concert::kernels::cuda {

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(__half x) { return __half2float(x); }
__device__ inline float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }
// Exact; emulated before sm_89.
__device__ inline float ToFloat(__nv_fp8_e4m3 x) { return static_cast<float>(x); }

template <typename T>
__device__ T FromFloat(float x);
template <>
__device__ inline float FromFloat<float>(float x) {
  return x;
}
template <>
__device__ inline __half FromFloat<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline __nv_bfloat16 FromFloat<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// Two elements at once: one instruction rounds both.
__device__ inline float2 ToFloats(float2 x) { return x; }
__device__ inline float2 ToFloats(__half2 x) { return __half22float2(x); }
__device__ inline float2 ToFloats(__nv_bfloat162 x) { return __bfloat1622float2(x); }
__device__ inline void Round(float2 x, float2& pair) { pair = x; }
__device__ inline void Round(float2 x, __half2& pair) { pair = __float22half2_rn(x); }
__device__ inline void Round(float2 x, __nv_bfloat162& pair) { pair = __float22bfloat162_rn(x); }

// `kWidth` elements read and written at once; 16 bytes where kWidth is not 1.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T values[kWidth];
};

// `kWidth` elements from element `offset` of what lies at `address`, which both are multiples of a
// pack.
template <typename T, int kWidth>
__device__ Pack<T, kWidth>* PackAt(uint64_t address, uint64_t offset) {
  return reinterpret_cast<Pack<T, kWidth>*>(reinterpret_cast<T*>(address) + offset);
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_CUDA_API_ELEMENT_CUH_
