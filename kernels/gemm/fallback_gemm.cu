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

// Sums of a thread's columns of D, of a gated product those of gates and those of ups.
template <int kParts>
using Sums = float[kParts][kPerThread][kPerThread];

// T: of C, D and bias.
template <typename T, int kParts>
__device__ void StoreTile(const GemmArgs& args, uint64_t member, uint32_t first_row,
                          uint32_t first_column, const Sums<kParts>& sums) {
  const GemmEpilogue<T> epilogue(args, member);
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      const uint32_t row = first_row + i * kSide;
      const uint32_t column = first_column + j * kSide;
      if (row >= args.m || column >= args.n / kParts) continue;
      if constexpr (kParts == 1) {
        epilogue.Store(epilogue.Before(sums[0][i][j], row, column), row, column);
      } else {
        epilogue.StoreGated(epilogue.Before(sums[0][i][j], row, epilogue.GateOf(column)),
                            epilogue.Before(sums[1][i][j], row, epilogue.UpOf(column)), row,
                            column);
      }
    }
  }
}

// T: of A and W; Output: of C, D and bias.
template <typename T, typename Output, int kParts>
__device__ void ComputeTile(const GemmArgs& args, uint64_t member, uint32_t tile_row,
                            uint32_t tile_column) {
  __shared__ Stage stage_a, stage_w[kParts];
  const T* a = At<const T>(args.a) + member * args.stride_a;
  const T* w = At<const T>(args.w) + member * args.stride_w;
  const uint32_t columns = args.n / kParts;  // of D
  // How far W's rows of ups lie behind those of gates, and each of them behind the one before.
  const uint64_t to_ups = args.interleaved ? args.ldw : columns * args.ldw;
  const uint64_t w_stride = args.interleaved ? 2 * args.ldw : args.ldw;
  const int thread_row = threadIdx.x / kSide;
  const int thread_column = threadIdx.x % kSide;
  Sums<kParts> sums = {};
  for (uint32_t k = 0; k < args.k; k += kDepth) {
    LoadStage(stage_a, a, args.lda, tile_row, args.m, k, args.k);
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      LoadStage(stage_w[part], w + part * to_ups, w_stride, tile_column, columns, k, args.k);
    __syncthreads();
#pragma unroll
    for (int depth = 0; depth < kDepth; ++depth) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int i = 0; i < kPerThread; ++i) {
#pragma unroll
          for (int j = 0; j < kPerThread; ++j) {
            sums[part][i][j] += stage_a[depth][thread_row + i * kSide] *
                                stage_w[part][depth][thread_column + j * kSide];
          }
        }
      }
    }
    __syncthreads();
  }
  StoreTile<Output, kParts>(args, member, tile_row + thread_row, tile_column + thread_column, sums);
}

// Blocks walk over the tiles of all batch members. kParts: 2 of a gated product, else 1.
template <typename T, typename Output, int kParts>
__device__ void FallbackGemm(const GemmArgs& args) {
  const uint64_t tiles_n = (args.n / kParts + kTile - 1) / kTile;
  const uint64_t tiles = tiles_n * ((args.m + kTile - 1) / kTile);
  for (uint64_t i = blockIdx.x; i < tiles * args.batch; i += gridDim.x) {
    const uint64_t tile = i % tiles;
    ComputeTile<T, Output, kParts>(args, i / tiles, static_cast<uint32_t>(tile / tiles_n) * kTile,
                                   static_cast<uint32_t>(tile % tiles_n) * kTile);
  }
}

}  // namespace

#define CONCERT_FALLBACK_GEMM(format, T, Output)                     \
  extern "C" __global__ void __launch_bounds__(kFallbackGemmThreads) \
      fallback_gemm_##format(const GemmArgs args) {                  \
    FallbackGemm<T, Output, 1>(args);                                \
  }                                                                  \
  extern "C" __global__ void __launch_bounds__(kFallbackGemmThreads) \
      fallback_gated_gemm_##format(const GemmArgs args) {            \
    FallbackGemm<T, Output, 2>(args);                                \
  }
CONCERT_FALLBACK_GEMM(bf16, __nv_bfloat16, __nv_bfloat16)
CONCERT_FALLBACK_GEMM(fp16, __half, __half)
CONCERT_FALLBACK_GEMM(fp32, float, float)
CONCERT_FALLBACK_GEMM(fp8_bf16, __nv_fp8_e4m3, __nv_bfloat16)
CONCERT_FALLBACK_GEMM(fp8_fp16, __nv_fp8_e4m3, __half)

}  // namespace concert::kernels::cuda
