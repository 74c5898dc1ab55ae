// One concrete way of running a GEMM. A variant describes itself: what it is stands in its fields,
// so that it means the same in another process, another build and a store.
#ifndef CONCERT_POLICIES_SEAM_VARIANT_H_
#define CONCERT_POLICIES_SEAM_VARIANT_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "policies/seam/work.h"

namespace concert::policies {

// GOLDYLOC's concurrency degree: how many GEMMs run together, as far as tuning tells that apart.
enum class Degree : uint8_t { kSolo = 0, kTwo = 1, kFour = 2, kEight = 3, kMany = 4 };
inline constexpr int kDegreeCount = 5;

// The degree that stands for a co-run set of `count` GEMMs: the next that is at least as large; 9
// and more are kMany.
constexpr Degree DegreeOf(int count) {
  if (count <= 1) return Degree::kSolo;
  if (count <= 2) return Degree::kTwo;
  if (count <= 4) return Degree::kFour;
  return count <= 8 ? Degree::kEight : Degree::kMany;
}
// The GEMMs that it stands for: 1, 2, 4, 8, 16.
constexpr int CountOf(Degree degree) { return 1 << static_cast<int>(degree); }

// 0 in a field: not known or not applicable.
struct Variant {
  enum class Source : uint8_t { kNone = 0, kCublasLt = 1, kGroup = 2 };

  Source source = Source::kNone;
  Dtype dtype = Dtype::kBf16;
  uint16_t sm_budget = 0;  // cuBLASLt: SM_COUNT_TARGET; group: blocks. 0: all
  uint16_t tile_m = 0, tile_n = 0, tile_k = 0;
  uint8_t cluster_m = 0, cluster_n = 0;
  uint8_t stages = 0;
  uint16_t split_k = 0;
  // cuBLASLt only: CUBLASLT_ALGO_CONFIG_* by value, and its place in the heuristic's list. They
  // identify the algorithm among those the heuristic offers again; they are never used unchecked.
  uint16_t algo_id = 0, tile_id = 0, stages_id = 0, cluster_id = 0, inner_id = 0;
  uint16_t reduction = 0, swizzle = 0, custom = 0;

  friend bool operator==(const Variant&, const Variant&) = default;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_SEAM_VARIANT_H_
