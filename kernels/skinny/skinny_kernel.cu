// A GEMM of up to 64 rows. A cluster of blocks makes a tile of D's columns, each block a part of K:
// so all SMs have their share of W, which comes from memory once, and none reads all of A. Blocks
// leave their sums in shared memory, and each adds up those of some rows (in a fixed order: results
// have the same bits each time).
//
// W, which nobody writes meanwhile, is on its way before the launch ahead has ended.
#include <cuda_bf16.h>

#include "kernels/cuda_api/matrices.cuh"
#include "kernels/group/async.cuh"
#include "kernels/group/wgmma.cuh"
#include "kernels/skinny/skinny_finish.cuh"
#include "kernels/skinny/skinny_heads.cuh"

namespace concert::kernels::cuda {
namespace {

constexpr int kMultipliersBarrier = 1;  // named; 0 is __syncthreads'

__device__ __forceinline__ void PrefetchMap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

template <int kColumns>
class SkinnyBlock {
 public:
  __device__ explicit SkinnyBlock(const SkinnyArgs& args) : tile_(args) {}

  __device__ void Run() {
    if (threadIdx.x == 0) {
      for (int i = 0; i < kStages; ++i) {
        InitBarrier(tile_.Full(i), 1);
        InitBarrier(tile_.Empty(i), kSkinnyMultipliers / 32);
        InitBarrier(tile_.Scaled(i), kSkinnyScalers / 32);
      }
      PublishBarriers();
    }
    __syncthreads();
    if (threadIdx.x < kSkinnyMultipliers) {
      Multiply();
    } else if (threadIdx.x < kSkinnyScalers) {
      if (tile_.HasHeads()) SkinnyHeads<kColumns>(tile_).FindPlaces();
      if (tile_.HasNorm()) HelpToScale();
      if (tile_.IsNormedAhead()) AddUpSquares();
    } else {
      if (Elect().is_leader) Load();
      __syncwarp();
    }
    tile_.SyncBlocks();
    WaitForPreviousLaunch();  // for C, and for who reads what D takes the place of
    if (tile_.HasHeads()) {
      if constexpr (kColumns % 64 == 0) SkinnyHeads<kColumns>(tile_).Run();
    } else {
      SkinnyFinish<kColumns>(tile_).Run();
    }
    if (tile_.parts > 1) tile_.WaitForReaders();
  }

 private:
  using Tile = SkinnyTile<kColumns>;
  static constexpr int kStages = Tile::kStages, kWBytes = Tile::kWBytes;

  // --- Who loads ---

  __device__ void Load() {
    const CacheHint hint = CacheHint::ReadOnce();  // W is; A, C and D are small, and are read again
    const int ahead = min(tile_.steps, kStages);
    for (int i = 0; i < ahead; ++i) LoadW(i, hint);
    PrefetchMap(&tile_.args.a);
    WaitForPreviousLaunch();
    for (int i = 0; i < ahead; ++i) LoadA(i);
    for (int i = ahead; i < tile_.steps; ++i) {
      WaitParity(tile_.Empty(i % kStages), (i / kStages - 1) & 1);
      LoadW(i, hint);
      LoadA(i);
    }
  }
  // W's, and all that is asked of the stage's barrier.
  __device__ void LoadW(int i, CacheHint hint) {
    const int stage = i % kStages;
    const uint32_t full = tile_.Full(stage), to = tile_.StageAt(stage);
    const int k = (tile_.first_step + i) * static_cast<int>(kSkinnyStep);
    ArriveExpecting(full, Tile::kStageBytes + (tile_.HasNorm() ? kRowBytes : 0));
    constexpr int kHalf = kColumns / 2;
    const bool apart = tile_.gemm.gated && !tile_.gemm.interleaved;
    const int first = tile_.index * (apart ? kHalf : kColumns);
    LoadTile(to, &tile_.args.w, full, k, first, hint);
    LoadTile(to + kWBytes / 2, &tile_.args.w, full, k,
             first + (apart ? static_cast<int>(tile_.gemm.n / 2) : kHalf), hint);
    if (tile_.HasNorm())
      LoadBytes(tile_.GainsAt(stage), tile_.args.skinny.gain + k * 2, kRowBytes, full);
  }
  __device__ void LoadA(int i) {
    const int stage = i % kStages;
    LoadTile(tile_.StageAt(stage) + kWBytes, &tile_.args.a, tile_.Full(stage),
             (tile_.first_step + i) * static_cast<int>(kSkinnyStep), 0);
  }

  // --- Who multiplies ---

  __device__ void Multiply() {
    float sums[kColumns / 2];
    float squares = 0;
    for (int i = 0; i < tile_.steps; ++i) {
      const int stage = i % kStages;
      WaitParity(tile_.Full(stage), (i / kStages) & 1);
      if (tile_.HasNorm()) {
        Scale(stage, squares);
        WaitParity(tile_.Scaled(stage), (i / kStages) & 1);
      }
      const uint64_t w = OperandDescriptor(tile_.StageAt(stage));
      const uint64_t a = OperandDescriptor(tile_.StageAt(stage) + kWBytes);
      WgmmaFence();
#pragma unroll
      for (int j = 0; j < kRowBytes / 32; ++j)
        Wgmma<Bf16, kColumns>::Run(sums, a + 2 * j, w + 2 * j, i + j > 0);
      WgmmaCommit();
      if (i == 0) continue;
      WgmmaWait<1>();
      if (threadIdx.x % 32 == 0) Arrive(tile_.Empty((i - 1) % kStages));
    }
    WgmmaWait<0>();
    // Nobody's tensor cores read what sums take the place of.
    NamedSync(kMultipliersBarrier, kSkinnyMultipliers);
    // Not before: the weights of the next launch would be in the way of this one's A and sums
    // (3072x1024, 96 blocks, one H200: 5.4 instead of 4.2 us).
    ReleaseNextLaunch();
    LeaveSums(sums, squares);
  }

  // The second half of what the multipliers do by themselves is too much for their pace.
  __device__ void HelpToScale() {
    float squares = 0;
    for (int i = 0; i < tile_.steps; ++i) {
      WaitParity(tile_.Full(i % kStages), (i / kStages) & 1);
      Scale(i % kStages, squares);
    }
    LeaveSquares(squares);
  }
  // Multiplies this warp's rows of a stage's A by the gain, and adds up the squares of what they
  // were. A thread has a quarter of a row; 16 bytes of eight threads lie in different banks.
  __device__ void Scale(int stage, float& squares) const {
    constexpr int kUnits = kRowBytes / 16 / 4;
    const int row = static_cast<int>(threadIdx.x) / 4, quarter = static_cast<int>(threadIdx.x) % 4;
    const uint32_t a = tile_.StageAt(stage) + kWBytes + row * kRowBytes;
#pragma unroll
    for (int j = 0; j < kUnits; ++j) {
      const int unit = quarter * kUnits + j;
      const uint32_t at = a + ((unit ^ (row & 7)) * 16);
      uint4 x = LoadShared(at);
      const uint4 gain = LoadShared(tile_.GainsAt(stage) + unit * 16);
      ScalePair(x.x, gain.x, squares);
      ScalePair(x.y, gain.y, squares);
      ScalePair(x.z, gain.z, squares);
      ScalePair(x.w, gain.w, squares);
      StoreShared(at, x);
    }
    PublishShared();  // the tensor cores read what threads have written
    __syncwarp();
    if (threadIdx.x % 32 == 0) Arrive(tile_.Scaled(stage));
  }
  __device__ static void ScalePair(uint32_t& x, uint32_t gain, float& squares) {
    const float2 values = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(x));
    squares = fmaf(values.x, values.x, squares);
    squares = fmaf(values.y, values.y, squares);
    auto& pair = reinterpret_cast<__nv_bfloat162&>(x);
    pair = __hmul2(pair, reinterpret_cast<const __nv_bfloat162&>(gain));
  }

  // A thread of the warpgroup has two rows of each eight columns, two neighbours of each (PTX ISA,
  // "wgmma", the accumulator's fragment).
  __device__ void LeaveSums(const float (&sums)[kColumns / 2], float squares) {
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    const int row = thread / 32 * 16 + lane / 4, column = lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        asm volatile(
            "st.shared.v2.f32 [%0], {%1, %2};" ::"r"(tile_.SumsAt(row + 8 * h, 8 * j + column)),
            "f"(sums[4 * j + 2 * h]), "f"(sums[4 * j + 2 * h + 1])
            : "memory");
      }
    }
    if (tile_.HasNorm()) LeaveSquares(squares);
  }
  __device__ void LeaveSquares(float squares) const {
    squares += __shfl_xor_sync(~0u, squares, 1);
    squares += __shfl_xor_sync(~0u, squares, 2);
    if (threadIdx.x % 4 == 0) StoreSquares(threadIdx.x / 4, squares);
  }
  __device__ void StoreSquares(int row, float squares) const {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(tile_.SquaresAt(row)), "f"(squares) : "memory");
  }
  // Of A's rows as a whole, two threads a row, while others multiply.
  __device__ void AddUpSquares() const {
    const NormedAhead& normed = tile_.args.skinny.a_normed;
    const int thread = static_cast<int>(threadIdx.x) - kSkinnyMultipliers, row = thread / 2;
    const auto* const of_row = At<const float>(normed.squares) + row;
    WaitForPreviousLaunch();
    float squares = 0;
#pragma unroll 8
    for (uint32_t tile = thread % 2; tile < normed.tiles; tile += 2)
      squares += of_row[tile * kMaxSkinnyRows];
    squares += __shfl_xor_sync(~0u, squares, 1);
    if (thread % 2 == 0) StoreSquares(row, squares);
  }

  const Tile tile_;
};

}  // namespace

#define CONCERT_SKINNY(columns)                                           \
  extern "C" __global__ void __launch_bounds__(kSkinnyThreads, 2)         \
      concert_skinny_##columns(const __grid_constant__ SkinnyArgs args) { \
    SkinnyBlock<columns>(args).Run();                                     \
  }
CONCERT_SKINNY(32)
CONCERT_SKINNY(64)
CONCERT_SKINNY(96)
CONCERT_SKINNY(128)

}  // namespace concert::kernels::cuda
