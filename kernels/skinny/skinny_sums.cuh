// Sums of a tile of the skinny kernel, and elements beside them.
#ifndef CONCERT_KERNELS_SKINNY_SKINNY_SUMS_CUH_
#define CONCERT_KERNELS_SKINNY_SKINNY_SUMS_CUH_

#include <cuda_bf16.h>

#include "kernels/cuda_api/element.cuh"
#include "kernels/skinny/skinny_tile.cuh"

namespace concert::kernels::cuda {

__device__ __forceinline__ float4 LoadOfBlock(uint32_t shared, int rank) {
  float4 value;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(InBlock(shared, rank)));
  return value;
}
__device__ __forceinline__ float LoadFloatOfBlock(uint32_t shared, int rank) {
  float value;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(InBlock(shared, rank)));
  return value;
}

// What all blocks of a cluster have left, added up.
template <int kColumns>
class SkinnySums {
 public:
  __device__ explicit SkinnySums(const SkinnyTile<kColumns>& tile) : tile_(tile) {}

  // Four columns of all parts' sums.
  __device__ float4 Sum(int row, int at, float factor) const {
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 4
    for (int part = 0; part < tile_.parts; ++part) {
      const float4 one = LoadOfBlock(tile_.SumsAt(row, at), part);
      sum.x += one.x, sum.y += one.y, sum.z += one.z, sum.w += one.w;
    }
    return make_float4(sum.x * factor, sum.y * factor, sum.z * factor, sum.w * factor);
  }
  __device__ float FactorOf(int row) const {
    float factor = tile_.gemm.alpha;
    if (tile_.gemm.a_scales != 0) factor *= At<const float>(tile_.gemm.a_scales)[row];
    float squares = 0;
    if (tile_.IsNormedAhead()) {
      squares = LoadFloatOfBlock(tile_.SquaresAt(row), tile_.rank);
    } else if (!tile_.HasNorm()) {
      return factor;
    }
#pragma unroll 4
    for (int part = 0; tile_.HasNorm() && part < tile_.parts; ++part)
      squares += LoadFloatOfBlock(tile_.SquaresAt(row), part);
    return factor * rsqrtf(squares / static_cast<float>(tile_.gemm.k) + tile_.args.skinny.epsilon);
  }
  __device__ static float4 AddScaled(float4 x, float4 c, float beta) {
    return make_float4(fmaf(beta, c.x, x.x), fmaf(beta, c.y, x.y), fmaf(beta, c.z, x.z),
                       fmaf(beta, c.w, x.w));
  }
  // `column`: of the product.
  template <bool kWide>
  __device__ float4 AddBias(float4 x, int column) const {
    return tile_.gemm.bias == 0 ? x : AddScaled(x, LoadPack<kWide>(tile_.gemm.bias, 0, column), 1);
  }

  // Four elements of a row that begins `offset` elements behind `begin`, as far as there are some.
  template <bool kWide>
  __device__ float4 LoadPack(Address begin, uint64_t offset, int column) const {
    const auto* const from = At<const __nv_bfloat16>(begin) + offset + column;
    float x[4] = {};
    if constexpr (kWide) {
      const auto pack = *reinterpret_cast<const Pack<__nv_bfloat16, 4>*>(from);
#pragma unroll
      for (int j = 0; j < 4; ++j) x[j] = __bfloat162float(pack.values[j]);
    } else {
      for (int j = 0; j < 4 && column + j < static_cast<int>(tile_.gemm.n); ++j)
        x[j] = __bfloat162float(from[j]);
    }
    return make_float4(x[0], x[1], x[2], x[3]);
  }
  template <bool kWide>
  __device__ void StorePack(Address row, float4 x, int column) const {
    auto* const to = At<__nv_bfloat16>(row) + column;
    const Pack<__nv_bfloat16, 4> pack = {__float2bfloat16(x.x), __float2bfloat16(x.y),
                                         __float2bfloat16(x.z), __float2bfloat16(x.w)};
    if constexpr (kWide) {
      *reinterpret_cast<Pack<__nv_bfloat16, 4>*>(to) = pack;
    } else {
      const int columns =
          tile_.gemm.gated ? tile_.template Columns<true>() : tile_.template Columns<false>();
      for (int j = 0; j < 4 && column + j < columns; ++j) to[j] = pack.values[j];
    }
  }

 private:
  const SkinnyTile<kColumns>& tile_;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_SKINNY_SKINNY_SUMS_CUH_
