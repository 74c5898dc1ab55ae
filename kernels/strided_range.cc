#include "kernels/strided_range.h"

#include <algorithm>
#include <utility>

namespace concert::kernels {
namespace {

using Level = StridedRange::Level;

// Floor and ceiling of a / b for b > 0.
int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b != 0 && a < 0 ? 1 : 0); }
int64_t CeilDivide(int64_t a, int64_t b) { return a / b + (a % b != 0 && a > 0 ? 1 : 0); }

// Of two with one level, of one stride: run i of `a` meets run j of `b` if
// -b.run_bytes < b.begin - a.begin + (j - i) * stride < a.run_bytes.
bool RunsMeet(const StridedRange& a, const StridedRange& b) {
  const auto stride = static_cast<int64_t>(a.levels[0].stride);
  const auto offset = static_cast<int64_t>(b.begin - a.begin);
  const int64_t first =
      std::max(FloorDivide(-static_cast<int64_t>(b.run_bytes) - offset, stride) + 1,
               1 - static_cast<int64_t>(a.levels[0].count));
  const int64_t last = std::min(CeilDivide(static_cast<int64_t>(a.run_bytes) - offset, stride) - 1,
                                static_cast<int64_t>(b.levels[0].count) - 1);
  return first <= last;
}

// Takes `a` apart along its last level, as far as it reaches into `b`.
bool PiecesMeet(const StridedRange& a, const StridedRange& b, int& pieces_left) {
  StridedRange piece = a;
  const Level level = piece.levels[--piece.level_count];
  const ByteRange first = piece.Bounds(), other = b.Bounds();
  const uint64_t from = other.begin < first.end ? 0 : (other.begin - first.end) / level.stride + 1;
  for (uint64_t i = from; i < level.count; ++i) {
    piece.begin = a.begin + i * level.stride;
    if (piece.begin >= other.end || pieces_left <= 0) return false;
    if (Meet(piece, b, pieces_left)) return true;
  }
  return false;
}

}  // namespace

void StridedRange::SetLevels(std::array<Level, 2> all) {
  if (all[1].stride < all[0].stride) std::swap(all[0], all[1]);
  for (const Level& level : all) {
    if (level.count == 1 || level.stride == 0) continue;
    Level* const before = level_count == 0 ? nullptr : &levels[0];
    if (before == nullptr && level.stride <= run_bytes) {
      run_bytes += (level.count - 1) * level.stride;
    } else if (before != nullptr && level.stride == before->count * before->stride) {
      before->count *= level.count;
    } else {
      levels[level_count++] = level;
    }
  }
}

bool Meet(const StridedRange& a, const StridedRange& b, int& pieces_left) {
  if (--pieces_left < 0) return false;
  if (!a.Bounds().Overlaps(b.Bounds())) return false;
  if (a.level_count == 0 && b.level_count == 0) return true;
  const bool alike = a.level_count == 1 && b.level_count == 1;
  if (alike && a.levels[0].stride == b.levels[0].stride) return RunsMeet(a, b);
  const bool take_a =
      alike ? a.levels[0].count <= b.levels[0].count : a.level_count > b.level_count;
  return take_a ? PiecesMeet(a, b, pieces_left) : PiecesMeet(b, a, pieces_left);
}

}  // namespace concert::kernels
