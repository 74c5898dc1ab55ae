// Powers of 2 in device code, of which those of e are made.
#ifndef CONCERT_KERNELS_EXP2_CUH_
#define CONCERT_KERNELS_EXP2_CUH_

namespace concert::kernels::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

// 2^x; what would be subnormal, which exp2f and __expf ask for first, is 0.
__device__ __forceinline__ float Exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_EXP2_CUH_
