// What tensor cores make of a chunk of A and the weights of a unit, or two: where a lane has what
// of A, of W and of their product.
//
// Of 32 elements of K, a pack, a lane takes 8 that are neighbours, of A's rows and W's columns
// alike: tensor cores add up all of K in whatever order, so that nothing is rearranged on the way.
#ifndef CONCERT_KERNELS_STEP_STEP_PRODUCT_CUH_
#define CONCERT_KERNELS_STEP_STEP_PRODUCT_CUH_

#include <cuda_bf16.h>

#include "kernels/attention_decode/attention_block.cuh"
#include "kernels/cuda_api/matrices.cuh"
#include "kernels/step/step_shared.h"

namespace concert::kernels::cuda {

__device__ __forceinline__ uint32_t MultiplyPairs(uint32_t a, uint32_t b) {
  const __nv_bfloat162 product = __hmul2(reinterpret_cast<const __nv_bfloat162&>(a),
                                         reinterpret_cast<const __nv_bfloat162&>(b));
  return reinterpret_cast<const uint32_t&>(product);
}

// Packs of a warp in a chunk of K.
inline constexpr int kStepPacks = kSlotColumns / 32 / kStepWarps;

// A lane's part of a chunk: of row lane / 4 of each eight of A's, or of W's columns, elements
// 8 * (lane % 4) to 8 * (lane % 4) + 7 of each pack.
template <int kRowTiles>
struct StepChunk {
  uint4 a[kStepPacks][kRowTiles];
};
using StepWeights = uint4[kStepPacks];

// `kRowTiles`: rows of A in eights. The left operand has sixteen rows, the right one eight: with
// more than eight rows of A, they are on the left and a unit's columns on the right.
template <int kRowTiles>
class StepProduct {
 public:
  static_assert(kRowTiles % 2 == 0);

  // Of each eight rows, times themselves.
  struct Squares {
    float sums[kRowTiles][4] = {};

    // Of row lane / 4, in lanes that have it.
    __device__ float Of(int row_tile, bool odd) const {
      const float(&of)[4] = sums[row_tile];
      const int even = row_tile % 2 * 2;
      return odd ? of[even + 1] : of[even];
    }
  };

  // Pack i of a chunk of A. `zero`: of which the compiler does not know that it is: else it would
  // move rows to where tensor cores want them once for each product instead of once for all.
  __device__ void Take(int i, const uint4 (&rows)[kRowTiles], uint32_t zero) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      uint32_t(&to)[2][4] = a_[i][r / 2];
      to[0][r % 2] = rows[r].x ^ zero, to[0][2 + r % 2] = rows[r].y ^ zero;
      to[1][r % 2] = rows[r].z ^ zero, to[1][2 + r % 2] = rows[r].w ^ zero;
    }
  }
  // What Take had of pack i.
  __device__ void AddSquares(int i, const uint4 (&rows)[kRowTiles], Squares& squares) const {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const uint32_t(&a)[2][4] = a_[i][r / 2];
      MultiplyAdd(squares.sums[r], a[0], rows[r].x, rows[r].y);
      MultiplyAdd(squares.sums[r], a[1], rows[r].z, rows[r].w);
    }
  }
  // Multiplies all rows of pack i by a norm's gain.
  __device__ void Scale(int i, const uint4& gain) {
#pragma unroll
    for (uint32_t(&a)[2][4] : a_[i]) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        a[0][j] = MultiplyPairs(a[0][j], j < 2 ? gain.x : gain.y);
        a[1][j] = MultiplyPairs(a[1][j], j < 2 ? gain.z : gain.w);
      }
    }
  }

  // keep(unit, row tile, sums): of a unit, and of the second `if (both)`, what this lane has of the
  // products of eight rows, to be kept as number lane of 32 float2.
  template <typename Keep>
  __device__ void Multiply(const StepWeights& first, const StepWeights& second, bool both,
                           const Keep& keep) const {
    MultiplyUnit(0, first, keep);
    if (both) MultiplyUnit(1, second, keep);
  }
  // Where in those, as floats, the product of a row, of eight, and a column of the tensor cores is.
  static __device__ uint32_t PlaceOf(uint32_t row, uint32_t column) { return 8 * row + column; }

 private:
  template <typename Keep>
  __device__ void MultiplyUnit(int unit, const StepWeights& weights, const Keep& keep) const {
    // Two of each, so that products need not wait for each other.
    float sums[kRowTiles / 2][2][4] = {};
#pragma unroll
    for (int i = 0; i < kStepPacks; ++i) {
#pragma unroll
      for (int r = 0; r < kRowTiles / 2; ++r) {
        MultiplyAdd(sums[r][0], a_[i][r][0], weights[i].x, weights[i].y);
        MultiplyAdd(sums[r][1], a_[i][r][1], weights[i].z, weights[i].w);
      }
    }
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const float(&a)[4] = sums[r / 2][0], (&b)[4] = sums[r / 2][1];
      const int at = r % 2 * 2;
      keep(unit, r, make_float2(a[at] + b[at], a[at + 1] + b[at + 1]));
    }
  }

  uint32_t a_[kStepPacks][kRowTiles / 2][2][4];
};

// Up to eight rows of A are on the right, and the columns of two units on the left: half as many
// products, which outweighs that lanes move weights to where they are wanted (one H200, hidden 2048
// on 16 SMs: 222 instead of 232 us a layer).
template <>
class StepProduct<1> {
 public:
  struct Squares {
    float sums[2][2] = {};  // two, so that products need not wait for each other

    __device__ float Of(int, bool odd) const {
      return odd ? sums[0][1] + sums[1][1] : sums[0][0] + sums[1][0];
    }
  };

  __device__ void Take(int i, const uint4 (&rows)[1], uint32_t) { a_[i] = rows[0]; }
  __device__ void AddSquares(int, const uint4 (&rows)[1], Squares& squares) const {
    const uint4& a = rows[0];
    MultiplyUpper(squares.sums[0], a.x, a.y, a.x, a.y);
    MultiplyUpper(squares.sums[1], a.z, a.w, a.z, a.w);
  }
  __device__ void Scale(int i, const uint4& gain) {
    uint4& a = a_[i];
    a = {MultiplyPairs(a.x, gain.x), MultiplyPairs(a.y, gain.y), MultiplyPairs(a.z, gain.z),
         MultiplyPairs(a.w, gain.w)};
  }

  template <typename Keep>
  __device__ void Multiply(const StepWeights& first, const StepWeights& second, bool both,
                           const Keep& keep) const {
    float a[4] = {}, b[4] = {};
#pragma unroll
    for (int i = 0; i < kStepPacks; ++i) {
      const uint4 &one = first[i], &other = second[i];
      MultiplyAdd(a, {one.x, other.x, one.y, other.y}, a_[i].x, a_[i].y);
      MultiplyAdd(b, {one.z, other.z, one.w, other.w}, a_[i].z, a_[i].w);
    }
    keep(0, 0, make_float2(a[0] + b[0], a[1] + b[1]));
    if (both) keep(1, 0, make_float2(a[2] + b[2], a[3] + b[3]));
  }
  static __device__ uint32_t PlaceOf(uint32_t row, uint32_t column) { return 8 * column + row; }

 private:
  uint4 a_[kStepPacks];
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_STEP_PRODUCT_CUH_
