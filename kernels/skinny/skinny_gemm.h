// GEMMs of few rows, which the memory's pace at W binds: what the skinny kernel computes, of what,
// and how its blocks share it. Shared by host and device code, but for SkinnyObjection.
#ifndef CONCERT_KERNELS_SKINNY_SKINNY_GEMM_H_
#define CONCERT_KERNELS_SKINNY_SKINNY_GEMM_H_

#include <cstdint>
#include <string_view>

#include "kernels/gemm/gemm_args.h"
#include "kernels/indices.h"
#include "kernels/rope_append/rope_append_args.h"

namespace concert::kernels {

// Rows of A at most: those of one wgmma.
inline constexpr uint32_t kMaxSkinnyRows = 64;

// Most of an RMS norm, done by the GEMM that makes what is normalised: what is left to do is a
// factor for each row, which the GEMM that reads it makes of sums of squares.
struct NormedAhead {
  Address rows;  // times the norm's gain, in bf16, one behind the other; 0: nothing is done ahead
  Address squares;  // of row r in tile t of columns: float t * kMaxSkinnyRows + r
  uint32_t tiles;
};

// What becomes of D's columns if they are q's, k's and v's heads, one behind the other: q and k are
// rotated, and k and v go to a cache instead of D. In parts of rows, which have what is not the
// same for all.
struct SkinnyRope {
  static constexpr uint32_t kMaxParts = 8;
  struct Place {
    Address positions, slots, cos_sin, k, v;
  };
  RopeAppendArgs op;      // of the first part, with as many rows as each has
  uint32_t parts;         // 0: nothing is rotated
  const uint32_t* there;  // nothing is appended for part p if bit p is 0; null: for all
  Place places[kMaxParts];
};

// D = epilogue(alpha * norm(A) * W^T + ...): a GEMM in bf16 with what was folded into it.
struct SkinnyGemm {
  GemmArgs gemm;         // with residual, gate and bias, as concert_gemm_body has them
  Address gain;          // not 0: A's rows are RMS-normalised and multiplied by it first
  float epsilon;         // of the norm
  NormedAhead a_normed;  // of the same norm, instead of A and a gain
  NormedAhead d_normed;  // D's rows are left so, besides; not of a gated D
  Address d_gain;        // of d_normed
  SkinnyRope rope;  // of a D that nothing else becomes of, wide and in bf16, heads of 64 or 128
};
// K comes in steps of so many elements: 128 bytes, as many as a tensor copy mixes up.
inline constexpr uint32_t kSkinnyStep = 64;

// Why the skinny kernel cannot multiply it; empty: it can.
std::string_view SkinnyObjection(const GemmArgs& gemm);

// A cluster of `parts` blocks makes `columns` columns of the product, each block a part of K.
struct SkinnyTiling {
  uint32_t columns;  // 32, 64, 96 or 128
  uint32_t parts;    // 1 to kMaxSkinnyParts

  CONCERT_ON_BOTH_SIDES uint32_t TilesOf(uint32_t n) const { return (n + columns - 1) / columns; }
};
inline constexpr uint32_t kMaxSkinnyParts = 8;  // a cluster of more is not portable

// What is expected to be fastest on so many SMs. `group`: columns that a tile has all or none of,
// 32 to 128. REQUIRES: k is a multiple of kSkinnyStep.
SkinnyTiling TilingOf(uint32_t n, uint32_t k, int sm_count, uint32_t group = 32);

// Two blocks share an SM, so that the next launch's can load their weights while one computes.
inline constexpr uint32_t kSkinnyRingBytes = 100 * 1024;
// Of W and of A, one step of K.
CONCERT_ON_BOTH_SIDES constexpr uint32_t SkinnyStageBytes(uint32_t columns) {
  return (columns + kMaxSkinnyRows) * kSkinnyStep * 2;
}
CONCERT_ON_BOTH_SIDES constexpr uint32_t SkinnyStages(uint32_t columns) {
  return kSkinnyRingBytes / SkinnyStageBytes(columns);
}

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_SKINNY_SKINNY_GEMM_H_
