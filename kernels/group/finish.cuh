// From fp32 sums to results: scales, alpha, C, bias and activation, then rounding to 16 bits.
#ifndef CONCERT_KERNELS_GROUP_FINISH_CUH_
#define CONCERT_KERNELS_GROUP_FINISH_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/group/group_args.h"
#include "kernels/group/wgmma.cuh"

namespace concert::kernels::cuda {

// Reads pass by L1: C may be the result of a launch that was running when this one started.
template <class Out>
struct Half;
template <>
struct Half<__nv_bfloat16> {
  __device__ __forceinline__ static float Read(const void* base, uint64_t index) {
    return __bfloat162float(__ldcg(static_cast<const __nv_bfloat16*>(base) + index));
  }
  __device__ __forceinline__ static uint32_t Pack(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  }
};
template <>
struct Half<__half> {
  __device__ __forceinline__ static float Read(const void* base, uint64_t index) {
    return __half2float(__ldcg(static_cast<const __half*>(base) + index));
  }
  __device__ __forceinline__ static uint32_t Pack(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  }
};

// A thread of a warpgroup holds, of each 8 rows of D: columns c and c + 8 (its warp's 16, by lane /
// 4), times rows r and r + 1 (2 * (lane % 4)), in the order (c, r), (c, r + 1), (c + 8, r), (c + 8,
// r + 1). Columns of D are rows of W.
template <int kN, class Function>
__device__ __forceinline__ void ForEachSum(int x, int y, int thread, Function&& function) {
  const int column = x + (thread >> 5) * 16 + (thread >> 2 & 7), row = y + (thread & 3) * 2;
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) {
    function(i, row + (i >> 2) * 8 + (i & 1), column + (i >> 1 & 1) * 8);
  }
}

// tanh form, as cuBLASLt's and the CPU reference's within bf16's rounding; tanh.approx errs by at
// most 2^-11 relative (PTX ISA).
__device__ __forceinline__ float Gelu(float v) {
  float t;
  const float inner = 0.7978845608f * v * (1.0f + 0.044715f * v * v);
  asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(inner));
  return 0.5f * v * (1.0f + t);
}
__device__ __forceinline__ float Silu(float v) { return __fdividef(v, 1.0f + __expf(-v)); }

// Reading C and bias, and rounding D, by the format of the inputs.
template <class Format>
struct Output;
template <>
struct Output<Bf16> : Half<__nv_bfloat16> {
  __device__ explicit Output(uint32_t) {}
};
template <>
struct Output<Fp16> : Half<__half> {
  __device__ explicit Output(uint32_t) {}
};
template <>
struct Output<E4m3> {
  __device__ explicit Output(uint32_t flags) : fp16((flags & GroupRecord::kFp16Out) != 0) {}
  __device__ __forceinline__ float Read(const void* base, uint64_t index) const {
    return fp16 ? Half<__half>::Read(base, index) : Half<__nv_bfloat16>::Read(base, index);
  }
  __device__ __forceinline__ uint32_t Pack(float low, float high) const {
    return fp16 ? Half<__half>::Pack(low, high) : Half<__nv_bfloat16>::Pack(low, high);
  }
  bool fp16;
};

// Stores the elements that exist one by one.
template <class Format, int kN>
__device__ __forceinline__ void StoreElements(const GroupTask& task, const GroupRecord& record,
                                              int x, int y, int thread, const float (&d)[kN / 2]) {
  const Output<Format> output(task.flags);
  const int m = static_cast<int>(task.m), n = static_cast<int>(task.n);
  ForEachSum<kN>(x, y, thread, [&](int i, int row, int column) {
    if (row >= m || column >= n) return;
    static_cast<uint16_t*>(record.d_rows)[row * record.ldd + column] =
        static_cast<uint16_t>(output.Pack(d[i], 0.0f));
  });
}

template <int kN>
__device__ __forceinline__ void Activate(uint32_t activation, float (&d)[kN / 2]) {
  switch (activation) {  // kernels::Activation
    case 1:
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) d[i] = d[i] < 0.0f ? 0.0f : d[i];  // keeps NaN
      break;
    case 2:
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) d[i] = Gelu(d[i]);
      break;
    case 3:
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) d[i] = Silu(d[i]);
      break;
  }
}

// What of a thread's columns finishing takes: d times `scale` plus `bias`, of the columns c and c +
// 8 of ForEachSum.
struct Columns {
  float scale[2] = {1, 1};
  float bias[2] = {0, 0};

  template <class Format>
  __device__ __forceinline__ static Columns Read(const GroupTask& task, const GroupRecord& record,
                                                 int x, int thread) {
    const Output<Format> output(task.flags);
    const int n = static_cast<int>(task.n);
    float factor = record.alpha;
    const bool w_per_row = (task.flags & GroupRecord::kWScalesPerRow) != 0;
    if constexpr (sizeof(typename Format::Input) == 1) {
      const bool a_per_row = (task.flags & GroupRecord::kAScalesPerRow) != 0;
      if (record.a_scales != nullptr && !a_per_row) factor *= __ldcg(record.a_scales);
      if (record.w_scales != nullptr && !w_per_row) factor *= __ldcg(record.w_scales);
    }
    Columns columns;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column = x + (thread >> 5) * 16 + (thread >> 2 & 7) + 8 * i;
      columns.scale[i] = factor;
      if (column >= n) continue;
      if (w_per_row) columns.scale[i] *= __ldcg(record.w_scales + column);
      if (record.bias != nullptr) columns.bias[i] = output.Read(record.bias, column);
    }
    return columns;
  }
};

// d = act(alpha * scales * d + beta * C + bias) where the element exists. What is asked of all
// elements is asked before each loop over them, not 128 times within: of e4m3, four 3013x1072x1136
// took 48 us instead of 33 (one H200).
template <class Format, int kN>
__device__ __forceinline__ void Finish(const GroupTask& task, const GroupRecord& record,
                                       const Columns& columns, int x, int y, int thread,
                                       float (&d)[kN / 2]) {
  const Output<Format> output(task.flags);
  const int m = static_cast<int>(task.m), n = static_cast<int>(task.n);
  if (task.flags & GroupRecord::kAScalesPerRow) {
    ForEachSum<kN>(x, y, thread, [&](int i, int row, int) {
      if (row < m) d[i] *= __ldcg(record.a_scales + row);
    });
  }
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) {
    d[i] = columns.scale[i >> 1 & 1] * d[i] + columns.bias[i >> 1 & 1];
  }
  if (task.flags & GroupRecord::kHasC) {
    const float beta = record.beta;
    ForEachSum<kN>(x, y, thread, [&](int i, int row, int at) {
      if (row < m && at < n) d[i] += beta * output.Read(record.c, row * record.ldc + at);
    });
  }
  Activate<kN>(record.activation, d);
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GROUP_FINISH_CUH_
