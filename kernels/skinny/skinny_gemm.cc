#include "kernels/skinny/skinny_gemm.h"

#include <algorithm>
#include <limits>

namespace concert::kernels {
namespace {

// In columns of one step. Steps and their columns are the pace of W and A, waves of it; a step
// costs as much as 16 columns more, a part of K 8. Beyond three quarters of the SMs a block costs
// 32, since the next launch's can then not be there while this one's compute. Of 15 shapes in all
// tilings (cuda_skinny_measure.cc, one H200) what this chooses takes 3.7 % longer than the fastest
// (geometric mean; 11 % at worst) and 4 % less than cuBLASLt's.
double CostOf(SkinnyTiling tiling, uint32_t n, uint32_t k, uint32_t sms) {
  const uint32_t blocks = tiling.TilesOf(n) * tiling.parts, steps = k / kSkinnyStep;
  const uint32_t waves = (blocks + sms - 1) / sms;
  const uint32_t most_steps = (steps + tiling.parts - 1) / tiling.parts;
  const uint32_t wanted_free = sms / 4, free = sms - std::min(blocks, sms);
  return waves * most_steps * (tiling.columns + 16.0) + 8.0 * tiling.parts +
         32.0 * (wanted_free - std::min(free, wanted_free));
}

}  // namespace

std::string_view SkinnyObjection(const GemmArgs& gemm) {
  if (gemm.dtype != Dtype::kBf16 || gemm.d_dtype != Dtype::kBf16) return "only bf16 is supported";
  if (gemm.batch != 1) return "it has several matrices";
  if (gemm.m > kMaxSkinnyRows) return "it has more than 64 rows";
  if (gemm.k % kSkinnyStep != 0) return "k is no multiple of 64";
  // As tensor maps have it (CUDA driver API, cuTensorMapEncodeTiled).
  if ((gemm.a | gemm.w) % 16 != 0 || (gemm.lda | gemm.ldw) % 8 != 0)
    return "A and W must begin at multiples of 16 bytes, and their strides be multiples of 8";
  if (std::max({gemm.lda, gemm.ldw, gemm.ldc, gemm.ldd}) > std::numeric_limits<uint32_t>::max())
    return "a stride takes more than 32 bits";
  return "";
}

SkinnyTiling TilingOf(uint32_t n, uint32_t k, int sm_count, uint32_t group) {
  const auto sms = static_cast<uint32_t>(sm_count);
  SkinnyTiling best = {};
  double best_cost = std::numeric_limits<double>::infinity();
  for (const uint32_t columns : {32u, 64u, 96u, 128u}) {
    if (columns % group != 0) continue;
    for (uint32_t parts = 1; parts <= std::min(kMaxSkinnyParts, k / kSkinnyStep); ++parts) {
      const SkinnyTiling tiling = {columns, parts};
      // Parts are for what has too few tiles.
      if (parts > 1 && tiling.TilesOf(n) * parts > sms) break;
      const double cost = CostOf(tiling, n, k, sms);
      if (cost >= best_cost) continue;
      best = tiling;
      best_cost = cost;
    }
  }
  return best;
}

}  // namespace concert::kernels
