// A GEMM that is right for every shape, stride and address: what runs when cuBLASLt has no kernel
// for a problem (odd addresses, mostly). Plain fp32 arithmetic on 64x64 tiles; speed comes second.
#include "kernels/cuda_api/element.cuh"
#include "kernels/gemm/gemm_args.h"
#include "kernels/gemm/gemm_epilogue.cuh"
#include "kernels/gemm/gemm_kernel_args.h"

namespace concert::kernels::cuda {
namespace {

constexpr int kTile = kFallbackGemmTile;
constexpr int kDepth = 16;     // columns of A and W per step
constexpr int kPerThread = 4;  // rows and columns of D per thread
constexpr int kSide = kTile / kPerThread;
static_assert(kSide * kSide == kFallbackGemmThreads);

// Tiles of kTile rows by kDepth, stored transposed; one column of padding spreads the banks.
using Stage = float[kDepth][kTile + 1];

template <typename T>
__device__ void LoadStage(Stage& stage, const T* matrix, uint64_t stride, uint32_t first_row,
                          uint32_t rows, uint32_t first_column, uint32_t columns) {
  for (int i = threadIdx.x; i < kTile * kDepth; i += kFallbackGemmThreads) {
    const uint32_t row = first_row + i / kDepth;
    const uint32_t column = first_column + i % kDepth;
    const bool inside = row < rows && column < columns;
    stage[i % kDepth][i / kDepth] = inside ? ToFloat(matrix[row * stride + column]) : 0.0f;
  }
}

// T: of C, D and bias.
template <typename T>
__device__ void StoreTile(const GemmArgs& args, uint64_t member, uint32_t first_row,
                          uint32_t first_column, const float (&sums)[kPerThread][kPerThread]) {
  const GemmEpilogue<T> epilogue(args, member);
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      const uint32_t row = first_row + i * kSide;
      const uint32_t column = first_column + j * kSide;
      if (row >= args.m || column >= args.n) continue;
      epilogue.Store(epilogue.Before(sums[i][j], row, column), row, column);
    }
  }
}

// T: of A and W; Output: of C, D and bias.
template <typename T, typename Output>
__device__ void ComputeTile(const GemmArgs& args, uint64_t member, uint32_t tile_row,
                            uint32_t tile_column) {
  __shared__ Stage stage_a, stage_w;
  const T* a = At<const T>(args.a) + member * args.stride_a;
  const T* w = At<const T>(args.w) + member * args.stride_w;
  const int thread_row = threadIdx.x / kSide;
  const int thread_column = threadIdx.x % kSide;
  float sums[kPerThread][kPerThread] = {};
  for (uint32_t k = 0; k < args.k; k += kDepth) {
    LoadStage(stage_a, a, args.lda, tile_row, args.m, k, args.k);
    LoadStage(stage_w, w, args.ldw, tile_column, args.n, k, args.k);
    __syncthreads();
#pragma unroll
    for (int depth = 0; depth < kDepth; ++depth) {
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
#pragma unroll
        for (int j = 0; j < kPerThread; ++j) {
          sums[i][j] +=
              stage_a[depth][thread_row + i * kSide] * stage_w[depth][thread_column + j * kSide];
        }
      }
    }
    __syncthreads();
  }
  StoreTile<Output>(args, member, tile_row + thread_row, tile_column + thread_column, sums);
}

// Blocks walk over the tiles of all batch members.
template <typename T, typename Output>
__device__ void FallbackGemm(const GemmArgs& args) {
  const uint64_t tiles_n = (args.n + kTile - 1) / kTile;
  const uint64_t tiles = tiles_n * ((args.m + kTile - 1) / kTile);
  for (uint64_t i = blockIdx.x; i < tiles * args.batch; i += gridDim.x) {
    const uint64_t tile = i % tiles;
    ComputeTile<T, Output>(args, i / tiles, static_cast<uint32_t>(tile / tiles_n) * kTile,
                   static_cast<uint32_t>(tile % tiles_n) * kTile);
  }
}

}  // namespace

#define CONCERT_FALLBACK_GEMM(name, T, Output)                       \
  extern "C" __global__ void __launch_bounds__(kFallbackGemmThreads) \
      name(const GemmArgs args) {                            \
    FallbackGemm<T, Output>(args);                                   \
  }
CONCERT_FALLBACK_GEMM(fallback_gemm_bf16, __nv_bfloat16, __nv_bfloat16)
CONCERT_FALLBACK_GEMM(fallback_gemm_fp16, __half, __half)
CONCERT_FALLBACK_GEMM(fallback_gemm_fp32, float, float)
CONCERT_FALLBACK_GEMM(fallback_gemm_fp8_bf16, __nv_fp8_e4m3, __nv_bfloat16)
CONCERT_FALLBACK_GEMM(fallback_gemm_fp8_fp16, __nv_fp8_e4m3, __half)

}  // namespace concert::kernels::cuda
