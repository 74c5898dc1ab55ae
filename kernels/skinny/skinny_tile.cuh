// What a block of the skinny kernel has to do, and where what is in its shared memory.
#ifndef CONCERT_KERNELS_SKINNY_SKINNY_TILE_CUH_
#define CONCERT_KERNELS_SKINNY_SKINNY_TILE_CUH_

#include "kernels/group/async.cuh"
#include "kernels/skinny/skinny_args.h"

namespace concert::kernels::cuda {

constexpr int kRowBytes = kSkinnyStep * 2;  // of a tile in shared memory
constexpr int kABytes = static_cast<int>(kMaxSkinnyRows) * kRowBytes;

template <typename T>
__device__ T* At(Address address) {
  return reinterpret_cast<T*>(address);
}

// `kColumns`: of the product, by a cluster.
template <int kColumns>
struct SkinnyTile {
  static constexpr int kStages = static_cast<int>(SkinnyStages(kColumns));
  static constexpr int kWBytes = kColumns * kRowBytes;
  static constexpr int kStageBytes = kWBytes + kABytes;
  // Between rows of sums, so that eight rows lie in different banks.
  static constexpr int kSumsStride = kColumns + 8;
  static_assert(kMaxSkinnyRows * kSumsStride * sizeof(float) <= kSkinnyRingBytes);

  __device__ explicit SkinnyTile(const SkinnyArgs& arguments)
      : args(arguments),
        gemm(arguments.skinny.gemm),
        parts(static_cast<int>(arguments.parts)),
        ring(SharedAddress(Shared())),
        rank(parts > 1 ? ClusterRank() : 0),
        index(static_cast<int>(blockIdx.x / arguments.parts)),
        first_step(Steps() * rank / parts),
        steps(Steps() * (rank + 1) / parts - first_step) {}

  // Shared memory: the ring, which sums take the place of; gains; barriers; of each row a sum of
  // squares and, of heads, its place.
  __device__ uint32_t StageAt(int stage) const { return ring + stage * kStageBytes; }
  __device__ uint32_t GainsAt(int stage) const {
    return ring + kSkinnyRingBytes + stage * kRowBytes;
  }
  __device__ uint32_t Full(int stage) const { return GainsAt(kStages) + 24 * stage; }
  __device__ uint32_t Empty(int stage) const { return Full(stage) + 8; }
  __device__ uint32_t Scaled(int stage) const { return Full(stage) + 16; }
  __device__ uint32_t SquaresAt(int row) const { return Full(kStages) + 4 * row; }
  __device__ uint32_t PlaceAt(int row) const { return SquaresAt(kMaxSkinnyRows) + 16 * row; }
  __device__ uint32_t SumsAt(int row, int column) const {
    return ring + (row * kSumsStride + column) * static_cast<int>(sizeof(float));
  }

  __device__ bool HasNorm() const { return args.skinny.gain != 0; }
  __device__ bool IsNormedAhead() const { return args.skinny.a_normed.rows != 0; }
  __device__ bool HasHeads() const { return args.skinny.rope.parts != 0; }

  // Of D.
  template <bool kGated>
  __device__ int Columns() const {
    return static_cast<int>(kGated ? gemm.n / 2 : gemm.n);
  }
  // Of D, that this block makes: rank, rank + parts and so on.
  __device__ int rows() const { return (static_cast<int>(gemm.m) - rank + parts - 1) / parts; }

  __device__ void SyncBlocks() const {
    if (parts > 1) {
      SyncCluster();
    } else {
      __syncthreads();
    }
  }

  // Until all blocks of the cluster are here, and so have read this one's sums. Nobody reads what
  // they wrote meanwhile, so that there is nothing to release: to wait until D is in the L2 cache
  // took 0.4 us.
  __device__ static void WaitForReaders() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
  }

  const SkinnyArgs& args;
  const GemmArgs& gemm;
  const int parts;
  const uint32_t ring;
  const int rank, index;        // of the block in its cluster, of the tile among all
  const int first_step, steps;  // of K, that are the block's

 private:
  __device__ static uint8_t* Shared() {
    extern __shared__ __align__(1024) uint8_t shared[];
    return shared;
  }
  __device__ int Steps() const { return static_cast<int>(gemm.k / kSkinnyStep); }
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_SKINNY_SKINNY_TILE_CUH_
