// Argument of the skinny kernel, shared by host and device code. Passed by value.
#ifndef CONCERT_KERNELS_SKINNY_SKINNY_ARGS_H_
#define CONCERT_KERNELS_SKINNY_SKINNY_ARGS_H_

#include <cuda.h>

#include "kernels/skinny/skinny_gemm.h"

namespace concert::kernels::cuda {

struct SkinnyArgs {
  CUtensorMap a;  // boxes of kMaxSkinnyRows rows and kSkinnyStep columns
  CUtensorMap w;  // boxes of half a tile's columns, which are rows of W, and kSkinnyStep
  SkinnyGemm skinny;
  uint32_t parts;  // as SkinnyTiling
  bool wide;       // C, D, bias and what is normed ahead can be moved four elements at a time
};

// A warpgroup multiplies, and with another one multiplies A by the norm's gain; one thread of one
// more warp loads. All make D of the sums.
inline constexpr int kSkinnyMultipliers = 128;
inline constexpr int kSkinnyScalers = 2 * kSkinnyMultipliers;
inline constexpr int kSkinnyThreads = kSkinnyScalers + 32;

// Dynamic: the ring, then each stage's gain and three barriers, then for each row a sum of squares
// and where k and v go.
constexpr uint32_t SkinnySharedBytes(uint32_t columns) {
  return kSkinnyRingBytes + SkinnyStages(columns) * (kSkinnyStep * 2 + 24) +
         kMaxSkinnyRows * (4 + 16);
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_SKINNY_SKINNY_ARGS_H_
